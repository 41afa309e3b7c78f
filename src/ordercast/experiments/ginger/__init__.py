"""The evaluation of the broker system in its source: scenarios of crashes, repairs, faults and keys."""

from __future__ import annotations

from ordercast.experiments.ginger.claims import fault_claims, key_claims, repair_claims, scenario_claims
from ordercast.experiments.ginger.figures import fault_figures, key_figures, repair_figures, scenario_figures
from ordercast.experiments.ginger.runs import measure, measure_latency, measure_repair, weigh
from ordercast.experiments.ginger.scales import FAULT_SCALES, KEY_SCALES, REPAIR_SCALES, SCENARIO_SCALES
from ordercast.experiments.ginger.sources import GINGER
from ordercast.experiments.kit.study import PROTOTYPE, Study

_BROKERS = (
    " Eight brokers in Europe, North America and Asia, at most three neighbours each, and five clients of two topics. "
)
_LOAD = (
    "Every client publishes every 50 ms an operation of a bank on accounts at random: 40 % eventual (balance), 30 % "
    "causal (deposit), 30 % total (withdrawal, transfer between two accounts, interest). Brokers crash when 40 % is "
    "published. Every run is judged, and replicas of the bank apply what was delivered.\n\nThe source's figures are "
    "not in its text: the overlay follows its logs. It leaves open what latency a new link has; here it is that of its "
    "regions, so repairs take longer."
)
_SET_UP = (
    f"{_BROKERS}Every pair of regions has one latency, the mean of the range that the source gives (one way 30 to 240 "
    f"ms), also after a repair. Latency is from publication to delivery at each other member. {_LOAD}"
)

_WORDS = {
    "b0 to b7, c0 to c4": "the eight brokers, b0 the root, and the five clients",
    "S0 to S5": "the source's scenarios: nothing crashes; b1; b0; b1 and b4; b0 and b1; b1, b2 and b3",
    "E6": "one more crash, of b3 alone, for a statement of the source",
    "E1 to E14": "statements of the source about the structure: views, degrees, elections, exchanges, order",
    "Q1 to Q7": "claims of the source about times",
    "eventual, causal, total": "the guarantee that a publication chooses; eventual promises no order",
    "order scope key, session": "a total is ordered with what shares its keys; or its client's later publications wait "
    "for it, whatever their keys",
    "hop order": "a broker that has lost its parent asks whoever is fewest hops away; else those above it first",
    "round": "one request of a broker that has lost its parent to be taken in, whatever the answer",
    "prototype": f"{PROTOTYPE}: two programs written apart should measure about the same",
    "[Ginger]": "the source",
}

SCENARIOS_STUDY = Study(
    name="ginger-scenarios",
    version=1,
    title="Brokers that crash: the source's scenarios S0 to S5",
    source=GINGER,
    description="S0: no crash. S1: b1. S2: the root b0. S3: b1 and b4, where c0 is. S4: b0 and b1. S5: b1, b2 and b3. "
    "500 operations per client on 100 keys; three seeds at the quick scale, ten at the other. E6, hop order, 10 and "
    "1000 keys are runs of their own (150 operations at the quick scale). S2 and S4, at the paper scale all, are run "
    "with real processes too, killed with SIGKILL, in a fifth of the time." + _SET_UP,
    scales=SCENARIO_SCALES,
    run=measure,
    claims=scenario_claims,
    figures=scenario_figures,
    weigh=weigh,
    words=_WORDS,
)

REPAIR_STUDY = Study(
    name="ginger-repair",
    version=2,
    title="What a repair of the tree takes",
    source=GINGER,
    description="Scenarios S1 to S5, and E6, where b3 crashes alone. Repair time is from the loss of the parent to the "
    "last missed publication. 1000 operations per client and ten seeds; at the quick scale 200 and five."
    + _BROKERS
    + "The latency of every pair of brokers is drawn from the range of its regions that the source gives (one way 5 to "
    "300 ms), anew for every seed: with constant latencies a repair would always take the same. " + _LOAD,
    scales=REPAIR_SCALES,
    run=measure_repair,
    claims=repair_claims,
    figures=repair_figures,
    weigh=weigh,
    words=_WORDS,
)

FAULTS_STUDY = Study(
    name="ginger-faults",
    version=1,
    title="Latency against faults",
    source=GINGER,
    description="Scenarios S0 to S5, with 500 operations per client and ten seeds, three at the quick scale; and S0, "
    "S2 and S4 with clients that are asked to pause above 150 entries." + _SET_UP,
    scales=FAULT_SCALES,
    run=measure_latency,
    claims=fault_claims,
    figures=fault_figures,
    weigh=weigh,
    words=_WORDS,
)

KEYS_STUDY = Study(
    name="ginger-keys",
    version=1,
    title="Latency against keys",
    source=GINGER,
    description="1, 10, 100 and 1000 keys with 0 to 3 faults (S0, S2, S4, S5), 500 operations per client and ten "
    "seeds, at the quick scale 200 and two; runs of growing length, where the load is more than the system can serve; "
    "and the load without transfers." + _SET_UP,
    scales=KEY_SCALES,
    run=measure_latency,
    claims=key_claims,
    figures=key_figures,
    weigh=weigh,
    words=_WORDS,
)

STUDIES = (FAULTS_STUDY, KEYS_STUDY, REPAIR_STUDY, SCENARIOS_STUDY)
