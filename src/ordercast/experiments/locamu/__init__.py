"""The evaluation of LoCaMu and its baselines in their source: figures 5.1 to 5.3."""

from __future__ import annotations

from ordercast.experiments.kit.study import Study
from ordercast.experiments.locamu.claims_causal import many_groups_claims, one_group_claims
from ordercast.experiments.locamu.claims_single import single_claims
from ordercast.experiments.locamu.figures import many_groups_figures, one_group_figures, single_figures
from ordercast.experiments.locamu.runs import ONE, SUBTREES, measure, weigh
from ordercast.experiments.locamu.scales import PAPER, QUICK, causal, single_publisher
from ordercast.experiments.locamu.sources import LOCAMU, WORDS

_SET_UP = (
    " Perfect binary trees; a node has one server for both directions, so a copy takes its bytes over the bandwidth at "
    "the sender, then 1 ms, then its bytes over the bandwidth at the receiver, each behind what came before. Bytes are "
    "those that the source counts or those of our encoding. Acknowledgements take bandwidth too and are counted apart. "
    "Deliveries are counted in a window after a warm-up. The quick scale has smaller trees, fewer points and one seed; "
    "the paper scale has 511 nodes and three seeds. Every run is judged; those on large trees end with their "
    "windows, so that of them nobody can ask what is missing, only whether the order held.\n\nThe curves of the source "
    "are not at hand as numbers; what is drawn beside ours are values of a prototype."
)

SINGLE_STUDY = Study(
    name="locamu-5.1",
    version=3,
    title="LoCaMu against Delta-Neighbourhood: pipelining against waiting",
    source=LOCAMU,
    description="Figure 5.1: throughput against system size, publishers, bandwidth, payload, f and degree; one group "
    "of all nodes, publishers that send as fast as they can." + _SET_UP,
    scales={"quick": single_publisher(QUICK), "paper": single_publisher(PAPER)},
    run=measure,
    claims=single_claims,
    figures=single_figures,
    weigh=weigh,
    words=WORDS,
)

ONE_GROUP_STUDY = Study(
    name="locamu-5.2",
    version=3,
    title="Causal multicast compared, one group: LoCaMu, CBCAST, Causal Barriers",
    source=LOCAMU,
    description="Figure 5.2: throughput and metadata against publishers, each limited to 100 messages/s, at 100 and at "
    "10 Mb/s; one group of all nodes." + _SET_UP,
    scales={"quick": causal(QUICK, ONE), "paper": causal(PAPER, ONE)},
    run=measure,
    claims=one_group_claims,
    figures=one_group_figures,
    weigh=weigh,
    words=WORDS,
)

MANY_GROUPS_STUDY = Study(
    name="locamu-5.3",
    version=3,
    title="Causal multicast compared, many groups: LoCaMu, CBCAST, Causal Barriers",
    source=LOCAMU,
    description="Figure 5.3: throughput and metadata against publishers, each limited to 100 messages/s, at 100 and at "
    "10 Mb/s; one group per inner node, its subtree (255 of them in 511 nodes). A publication goes to one of the "
    "publisher's own groups." + _SET_UP,
    scales={"quick": causal(QUICK, SUBTREES), "paper": causal(PAPER, SUBTREES)},
    run=measure,
    claims=many_groups_claims,
    figures=many_groups_figures,
    weigh=weigh,
    words=WORDS,
)

STUDIES = (SINGLE_STUDY, ONE_GROUP_STUDY, MANY_GROUPS_STUDY)
