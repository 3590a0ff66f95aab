"""Seeds that failed once; each line is a permanent test."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from .generate import OWNED, PLAIN, TAKING, Terms, generate
from .plan import Plan

BEFORE = replace(
    PLAIN,
    around=tuple((kind, 0.5 if kind == "jump" else weight) for kind, weight in PLAIN.around[:18]),
)
THEN = replace(
    BEFORE,
    to_query=BEFORE.to_query[:21],
    around=BEFORE.around[:13],
    logs_rarely=0.0,
    declares=0.0,
    two_drivers=0.0,
    gone=False,
)
LATE = replace(OWNED, around=PLAIN.around)
"""The terms when these seeds failed; new steps would change their plans."""


class Seed(msgspec.Struct, frozen=True):
    """A seed, what it once broke, and under which terms."""

    number: int
    what: str
    terms: Terms = LATE

    @property
    def plan(self) -> Plan:
        return generate(self.number, self.terms)


SEEDS = (
    Seed(113, "a slow query in a crash loop, in a driver that is closed and restarted", THEN),
    Seed(3403, "a JVM that ends while no query runs", THEN),
    Seed(5420, "a query that is stopped, restarts within its grace, and hangs", THEN),
    Seed(5602, "an unreported failure while the alert of a slow batch is open", THEN),
    Seed(5703, "a slow receiver while a query is stopped and restarted", THEN),
    Seed(5716, "a wrong token, and then another outage of the same receiver", THEN),
    Seed(313106863, "the warning of a slow batch while the query flaps", THEN),
    Seed(391022539, "a message that an outage delayed until the next problem had begun", THEN),
    Seed(486835918, "a first batch that hangs, and then is only slow", THEN),
    Seed(344622265, "a query that failed before the attach", THEN),
    Seed(1183, "an availableNow loop with an unreported failure", THEN),
    Seed(1273, "a planned stop of one of two namesakes, after the other has stopped", THEN),
    Seed(500157, "an availableNow loop that recovers, run by run", THEN),
    Seed(869342383, "a stalled unnamed query that is stopped", THEN),
    Seed(869342679, "a failed unnamed query whose next process only starts it", THEN),
    Seed(175117727, "a failed query whose first batch hangs over a restart of its driver", THEN),
    Seed(860000134, "a batch whose log is stuck as soon as it has committed", BEFORE),
    Seed(
        860000719, "batches of async progress tracking that run again under an open alert", BEFORE
    ),
    Seed(860001697, "a storage that refuses at the start of each run", BEFORE),
    Seed(860006781, "expect_stop for a name that the driver has not seen yet", BEFORE),
    Seed(860007286, "a signal to the JVM while the probe is refused", BEFORE),
    Seed(870001159, "an availableNow loop with a bad batch, stopped in the middle of it", BEFORE),
    Seed(870001779, "one poll that lacks a running query, and none after it", BEFORE),
    Seed(871001796, "flapping behind an alert of the whole driver", BEFORE),
    Seed(871100958, "a poll that lacks a starting availableNow run after its failure", BEFORE),
    Seed(871104022, "a stuck log, and then a batch that waits for slots", BEFORE),
    Seed(871200347, "an Alertmanager with a wrong token forgets an alert", BEFORE),
    Seed(872003010, "a failure in batch 0 whose checkpoint is not read", BEFORE),
    Seed(872102605, "a failure that nothing showed, after a planned stop", BEFORE),
    Seed(872200795, "a slow batch of an unnamed query that no poll shows", BEFORE),
    Seed(5343, "a driver that is killed again as its first alert resolves late", BEFORE),
    Seed(872201181, "a failure under a silence, and then a slow batch", BEFORE),
    Seed(2000306, "slow polls that show the end of a SparkContext"),
    Seed(2000423, "a batch that fails over restarts under a trigger of ten minutes"),
    Seed(3000499, "a pause of the JVM under a trigger of ten minutes"),
    Seed(680773525, "an alert that an outage delayed until its query had started"),
    Seed(680774388, "a realTime batch that fails over restarts"),
    Seed(937384839, "a stopped query is forgotten within its grace"),
    Seed(937386472, "a pause of the JVM between two long epochs"),
    Seed(644818188, "a plan of this very process, and the wall clock set ahead"),
    Seed(768480648, "a SparkContext that stops while the process is paused and closes"),
    Seed(768482201, "a poll that lacks a query during its recovery"),
    Seed(768482364, "a clock that is set back before the next process starts"),
    Seed(768482625, "a failure during an outage, shown before the name of its query"),
    Seed(768484278, "offsets that went back, and then no commit for long"),
    Seed(891833488, "a process that is killed before its stale resolve arrives"),
    Seed(891834169, "a stuck log under a trigger of ten minutes, over a restart"),
    Seed(891837318, "a process that is killed as it attaches"),
    Seed(891837354, "offsets that went back and then do not move"),
    Seed(891837595, "a page just before its query restarts and is delayed again"),
    Seed(891839783, "a run from before the attach that no poll shows"),
    Seed(891837191, "a failure before the first poll, which shows its name after a restart"),
    Seed(891841322, "polls that take longer than each run of a query that fails"),
    Seed(459590325, "rows that arrive while events are late and polls are slow"),
    Seed(459591356, "rows that arrive while events are late by 40 s"),
    Seed(459591877, "a restart whose first commit is lost, under a trigger of a minute"),
    Seed(891842377, "a failure before its alert has recovered in a new process"),
    Seed(677734552, "commits that only the log shows, while events are late"),
    Seed(677735871, "two stops of an unnamed query, before and after a restart"),
    Seed(677736529, "a wall clock set ahead before a query restarts"),
    Seed(677742777, "a driver that dies after it resolved its own StreamingDriverDown"),
    Seed(677744207, "another driver that dies just after its return"),
    Seed(677735738, "a failed namesake whose label the next process gives to no query"),
    Seed(677739326, "a driver that is killed as it wakes up, and a rejected message"),
    Seed(677739358, "four ends of a driver within eight minutes"),
    Seed(677741117, "an alert that the watcher sends again after its driver resolved it"),
    Seed(677741435, "a query that joins the alert of a SparkContext, which was rejected"),
    Seed(677741650, "a batch that is long, but not for a query with longer ones"),
    Seed(677742474, "polls that lack a query during its recovery, and then a failure"),
    Seed(677744503, "a failure that is restarted within half a second"),
    Seed(207588664, "a batch that begins just before missing input is due"),
    Seed(207588810, "two outages of a receiver, ten seconds apart"),
    Seed(207588853, "a warning that becomes critical as its driver answers again"),
    Seed(207590426, "a delayed batch under the alert of a JVM that was paused"),
    Seed(207593061, "a silenced failure whose query has not proven its recovery"),
    Seed(207594736, "a slow batch that takes a minute in any case"),
    Seed(207595526, "a slow batch of an unnamed query that flaps"),
    Seed(207595705, "a slow poll that lacks a query during its recovery"),
    Seed(94041044, "batches without executors, and then a pause of the JVM"),
    Seed(94041459, "a process that is killed before its spool is written"),
    Seed(94044121, "a continuous query that restarts during its recovery"),
    Seed(94046435, "a driver that wakes up without its JVM, and is killed"),
    Seed(94046765, "a wall clock set back just after a silence"),
    Seed(94046803, "a failed namesake whose label another query has in the next process"),
    Seed(94052827, "a wall clock set back before the next process starts"),
    Seed(94054814, "a driver that is killed just after its pause, with a late resolve"),
    Seed(332771363, "a warning in a critical group, which becomes critical itself"),
    Seed(583345032, "a process that is killed as it sends a late resolve"),
    Seed(94048959, "a crash while polls lack a query that has just restarted"),
    Seed(133023468, "a hang without executors while its query flaps"),
    Seed(362427049, "a namesake first shown by a poll that began before the other one failed"),
    Seed(213419329, "a stop whose query is forgotten, for lack of memory, before it is due"),
    Seed(213419375, "a batch that is old only by a clock that was set"),
    Seed(213420650, "a driver that is killed twice while another one is down"),
    Seed(213423991, "a planned stop of a query that the last poll lacked, but not its namesake"),
    Seed(213424479, "a failure that nothing shows, between a page and the end of the application"),
    Seed(213428377, "four batches that fail again and again, one after the other"),
    Seed(213430149, "a silence that lasts until after the end of a driver"),
    Seed(213430371, "a poll that began before a pause in which the SparkContext stops"),
    Seed(869934094, "a run whose start is lost while the probe is refused"),
    Seed(869935849, "a run whose start is lost, and whose JVM pauses before its first commit"),
    Seed(274651754, "a failure without a known start, of a query that failed before"),
    Seed(274653694, "a batch that fails because its SparkContext stops"),
    Seed(274652415, "a driver that is killed while its alert about a pause waits for an hour"),
    Seed(49087343, "a resolve at start-up that gets 410, under the key of a later failure"),
    Seed(208494143, "a stalled driver that an outage reports only when one query is stuck"),
    Seed(328320245, "a run that one poll lacks, and that the next ones list without details"),
    Seed(328321177, "the same after a crash loop"),
    Seed(328323868, "a failure whose event arrives after the incident was resolved"),
    Seed(328324942, "a failure that nothing showed, and a SparkContext that cuts off the next run"),
    Seed(280378687, "a driver that wakes up from a pause and ends within a second"),
    Seed(75043928, "a lag that shows before its stuck batch commits"),
    Seed(500404, "a driver whose restored group has two members left, under watch"),
    Seed(600179, "a second unnamed query that fails, at Alertmanager"),
    Seed(189747610, "a warning that only recovers, at Alertmanager", OWNED),
    Seed(189747644, "an application that ends just after it has explained a stop", OWNED),
    Seed(189747963, "two groups of failures at the same moment", OWNED),
    Seed(
        189748262, "an idle unnamed query that stops with its SparkContext, the second time", OWNED
    ),
    Seed(189748609, "a failure after the end of a JVM", OWNED),
    Seed(189748639, "the end of a JVM after two failures", OWNED),
    Seed(189748957, "a query that waits for slots for 250 s", OWNED),
    Seed(920600, "a group of failures, of which some are forgotten", OWNED),
    Seed(448183384, "an outage of an Alertmanager, while the end of a stale warning waits", OWNED),
    Seed(154017833, "a hang that becomes a wait for executors, with a log written rarely", OWNED),
    Seed(154019923, "a slow batch that has no executor at first, with a log written rarely", OWNED),
    Seed(538799109, "a slow batch of a query whose offsets went back", OWNED),
    Seed(241932353, "a start that polls miss, beside a namesake of another session", PLAIN),
    Seed(538805538, "failures that late events report after the recovery", OWNED),
    Seed(538805767, "a silence of one alert name while an unnamed query fails again", OWNED),
    Seed(538806089, "a silence that ends after an unnamed query has recovered", OWNED),
    Seed(538806244, "an unnamed query whose batch failed and now waits in a new process", OWNED),
    Seed(154020338, "a warning that recovers as the critical incident ends", OWNED),
    Seed(154022860, "a silence while a query fails in process after process", OWNED),
    Seed(154025220, "an availableNow run of before the attach that no poll shows", OWNED),
    Seed(154025413, "missing input before and after a failure, at a webhook", OWNED),
    Seed(788700683, "an unnamed query that flaps in a new process without executors", OWNED),
    Seed(788702683, "a query that joins the group of a failing batch", OWNED),
    Seed(900000611, "a checkpoint that is taken before a poll has shown its query", TAKING),
    Seed(900001940, "a slow warning that recovers as a failure ends", TAKING),
    Seed(900003710, "a process that ends just after it has found its query healthy", TAKING),
    Seed(910000407, "a loop whose runs come and go while Spark drops events", TAKING),
    Seed(910000659, "an Alertmanager that is gone for good while an alert lasts", TAKING),
    Seed(950000177, "the main program ends just after a failure", Terms()),
    Seed(980000055, "an unnamed query that holds all slots", Terms()),
    Seed(990000122, "the main program ends, and a slow poll delays its last evaluation", Terms()),
    Seed(1000000141, "a later failure whose message is rejected", Terms()),
    Seed(1000000350, "a batch without executors for as long as a slow one is allowed", Terms()),
    Seed(
        1000000789, "a failure that was rejected, and then a source that does not answer", Terms()
    ),
    Seed(1000001330, "a batch without executors whose log is written rarely", Terms()),
    Seed(1010000411, "two pauses within three batches that outlast their trigger", Terms()),
    Seed(1010000560, "the main program ends while events are missing", Terms()),
    Seed(
        1020000330, "a topic that is created again during a pause, before a run reads it", Terms()
    ),
    Seed(1020001449, "a session that expires while one of its queries flaps", Terms()),
)
