"""A Spark driver without a JVM: the test sets its answers, and commands are recorded."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

from py4j.protocol import Py4JError

from querypulse.listener.probe_report import CountedJobs, ListenerHealth
from querypulse.listener.spark.jvm import FIELD, RECORD
from querypulse.listener.spark.probe import SparkProbe

CLOSER_AFTER = 10.0


class FakeJavaObject:
    """A Java object: a method returns, raises or calls the answer that it was given."""

    def __init__(self, commands, **answers):
        self.commands = commands
        self.answers = answers

    def __getattr__(self, name):
        def call(*args):
            self.commands.append(name)
            answer = self.answers.get(name, Py4JError(f"Method {name}([]) does not exist"))
            if isinstance(answer, Exception):
                raise answer
            return (
                answer(*args)
                if callable(answer) and not isinstance(answer, FakeJavaObject)
                else answer
            )

        return call


def query_id(number):
    return f"00000000-0000-0000-0000-{number:012d}"


class FakeChannel:
    """An event channel that counts its calls."""

    health = ListenerHealth(registered=True)
    executions = None

    def __init__(self, counts=None):
        self.counts = counts
        self.first_job = 0
        self.sums = None
        """What finished tasks did, by query id."""
        self.covered = []
        self.counted = 0
        self.released = 0
        self.refuse = None
        self.terminated = False

    def check(self, now):
        return self.health

    def living_runs(self):
        """None, as where our Java is refused; ``fake_probe`` connects it to a ``FakeSpark``."""
        return

    def cover(self, execution):
        self.covered.append(execution)

    def release(self):
        self.released += 1
        if self.refuse is not None:
            raise self.refuse

    def tasks(self):
        return self.sums

    def job_counts(self):
        self.counted += 1
        if isinstance(self.counts, Exception):
            raise self.counts
        return None if self.counts is None else CountedJobs(self.counts, self.first_job)


class FakeSpark:
    """Queries by their number; each is a ``StreamExecution`` with settable answers."""

    version = "4.3.0"

    def __init__(self):
        self.commands = []
        self.executions = {}
        self.stopped = False
        self.shutting_down = False
        self.ended = False
        """Whether the JVM's process has ended."""
        self.refuse_all = None
        self.lines = {}
        self.jobs = {}
        """Job group -> ids of its jobs."""
        self.active_jobs = {}
        """Active job -> number of its completed tasks."""
        self.tracked_tasks = 1
        """How many active tasks of a stage the status tracker counts."""
        self.scheduled_tasks = {}
        """Stage -> number of its running tasks, as the task scheduler counts them."""
        self.slots = 4
        """The number of tasks that its executors can run at once."""
        self.hooks = self.java(inShutdown=lambda: self.shutting_down)
        self.sparkContext = SimpleNamespace(
            _jvm=self._jvm(), _jsc=self._java_context(), _gateway=self._gateway()
        )
        self._jsparkSession = self.java(sharedState=self.java(activeStreamingQueries=self._map()))

    def java(self, **answers):
        return FakeJavaObject(self.commands, **answers)

    def text(self, text):
        return self.java(toString=text, json=text, getSimpleName=text)

    def start(self, number, *, run=1, message="Waiting for data to arrive", busy=False, batch=3):
        """Start a run of a query; the test may change its answers."""
        status = {"message": message, "isDataAvailable": False, "isTriggerActive": busy}
        session = self.java(hash=1000 + number)
        stack = self.java(getStackTrace="stack", isAlive=False)
        self.executions[query_id(number)] = self.java(
            runId=self.text(f"run-{number}-{run}"),
            name=f"query {number}",
            isActive=True,
            status=self.text(json.dumps(status)),
            getLatestExecutionContext=self.java(batchId=batch),
            committedOffsets=self.text("{}"),
            availableOffsets=self.text("{}"),
            lastProgress=None,
            exception=self.java(isDefined=False),
            getClass=self.text("MicroBatchExecution"),
            trigger=self.text("ProcessingTimeTrigger(0)"),
            sink=self.text("NoopTable"),
            analyzedPlan=self.java(collectLeaves=self.java(size=0)),
            resolvedCheckpointRoot="file:/cp",
            sparkSession=self.java(sessionUUID="session-1"),
            sparkSessionForStream=session,
            queryExecutionThread=stack,
        )
        return self.executions[query_id(number)]

    def end(self, number, exception=None):
        """End the run of a query: Spark lists it no more."""
        execution = self.executions.pop(query_id(number))
        defined = exception is not None
        death = self.java(cause=exception)
        execution.answers |= {
            "isActive": False,
            "exception": self.java(isDefined=defined, get=death),
        }
        return execution

    def frame(self, number):
        """The JVM DataFrame of a batch of a query."""
        return self.java(sparkSession=self.java(hash=1000 + number))

    def answer(self, *_):
        """The answer of ``LivingRuns.java``."""
        self.commands.append("livingRuns")
        if self.refuse_all is not None:
            raise self.refuse_all
        lines = [self.lines.get(key) or self._line(key) for key in self.executions]
        return RECORD.join([*lines, str(self.stopped).lower(), ""])

    def _line(self, key):
        answers = self.executions[key].answers
        status = json.loads(answers["status"].answers["json"])
        flags = (str(status[name]).lower() for name in ("isDataAvailable", "isTriggerActive"))
        batch = answers["getLatestExecutionContext"].answers["batchId"]
        session = answers["sparkSessionForStream"].answers["hash"]
        run_id = answers["runId"].answers["toString"]
        active = str(answers["isActive"]).lower()
        said = (status["message"], *flags, str(batch), str(session), "", "")
        fields = (key, run_id, active, "false", str(10**9 * int(batch)), *said)
        return FIELD.join(fields)

    def _map(self):
        keys = self.java(toString=lambda: str(list(self.executions)))
        return self.java(keySet=keys, get=self.executions.get)

    def _java_context(self):
        tracker = self.java(
            getActiveJobIds=lambda: list(self.active_jobs),
            getJobIdsForGroup=lambda group: self.jobs.get(group, []),
            getJobInfo=lambda job: self.java(stageIds=[job]),
            getStageInfo=lambda stage: self.java(
                numCompletedTasks=self.active_jobs[stage],
                numActiveTasks=self.tracked_tasks,
                currentAttemptId=0,
            ),
        )
        context = self.java(
            isStopped=lambda: self.stopped,
            resourceProfileManager=self.java(defaultResourceProfile="the default"),
            maxNumConcurrentTasks=lambda _: self.slots,
            taskScheduler=self.java(taskSetManagerForAttempt=self._task_set),
        )
        return self.java(statusTracker=tracker, sc=context)

    def _task_set(self, stage, _attempt):
        running = self.scheduled_tasks.get(stage)
        return self.java(isDefined=running is not None, get=self.java(runningTasks=running))

    def _gateway(self):
        process = SimpleNamespace(poll=lambda: 1 if self.ended else None)
        # Nothing refuses a connection to this address, and nothing accepts it.
        parameters = SimpleNamespace(address="255.255.255.255", port=9)
        return SimpleNamespace(proc=process, gateway_parameters=parameters)

    def _jvm(self):
        jvm = MagicMock()
        classes = {
            "java.util.UUID": self.java(fromString=lambda text: text),
            "java.util.Arrays": self.java(toString=str),
            "org.apache.spark.util.ShutdownHookManager": self.hooks,
            "java.lang.System": self.java(identityHashCode=lambda java: java.answers["hash"]),
            "java.lang.Throwable": lambda: self.java(setStackTrace=None),
            "org.apache.spark.util.Utils": self.java(exceptionString=str),
        }
        for name, java in classes.items():
            setattr(jvm, name, java)
        return jvm


class StoppableContext(SimpleNamespace):
    """PySpark's SparkContext; its ``stop`` calls ``while_stopping``."""

    def stop(self):
        self.while_stopping()
        self._jsc = None


def fake_probe(spark, channel=None):
    """A probe of the fake Spark."""
    spark.sparkContext = StoppableContext(**vars(spark.sparkContext))
    channel = channel or FakeChannel()
    channel.living_runs = spark.answer
    return SparkProbe(spark, channel, CLOSER_AFTER)


def poll(probe, at=0.0):
    """The runs of one poll, by their names."""
    report = probe.poll(lambda: at)
    return {run.facts.name or run.facts.query_id: run for run in report.runs}
