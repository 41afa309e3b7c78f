"""Maps topics to the data services that handle their deliveries."""

from __future__ import annotations

from ordercast.core.errors import UsageError
from ordercast.core.ids import Topic
from ordercast.pubsub.filters import check_filter, matches
from ordercast.services.data_service import DataService, MethodService
from ordercast.services.operations import Service


class Dispatcher:
    """Topics to services. A topic may carry several services; one that no service takes is refused to all alike."""

    def __init__(self) -> None:
        self._registered: list[tuple[str, DataService]] = []
        self._found: dict[tuple[Topic, str], DataService] = {}

    def register(self, implementation: object, topics: str | None = None) -> DataService:
        """`implementation`: a DataService, or an object of a class with `@service`.

        `topics`: a topic or filter; needed where the service finds its topic by a function.
        """
        data = implementation if isinstance(implementation, DataService) else MethodService(implementation)
        pattern = topics
        if pattern is None:
            if not isinstance(data.service.topic, str):
                raise UsageError(f"service {data.service.name!r}: name its topics, they depend on the arguments")
            pattern = data.service.topic
        check_filter(pattern)
        if any(pattern == known and data.service.name == other.service.name for known, other in self._registered):
            raise UsageError(f"service {data.service.name!r} is already registered for {pattern!r}")
        self._registered.append((pattern, data))
        self._found.clear()
        return data

    def find(self, topic: Topic, service: str) -> DataService | None:
        """The one registered last wins, so that a topic can be taken out of a filter."""
        if (topic, service) not in self._found:
            fitting = (d for p, d in reversed(self._registered) if d.service.name == service and matches(p, topic))
            found = next(fitting, None)
            if found is None:
                return None  # Not remembered: anybody can publish the names of services that do not exist.
            self._found[topic, service] = found
        return self._found[topic, service]

    def services_of(self, topic: Topic) -> list[Service]:
        """Those that can be found on the topic, by name."""
        names = {data.service.name for pattern, data in self._registered if matches(pattern, topic)}
        found = [self.find(topic, name) for name in sorted(names)]
        return [data.service for data in found if data is not None]
