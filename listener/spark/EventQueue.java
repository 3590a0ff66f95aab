import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.SparkFirehoseListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Queues the streaming events of all sessions until Python takes them; event_paths.py reads it.
 *
 * <p>Spark's threads only append: they do not wait here and run no Python. Janino, Spark's compiler
 * for generated code, compiles this in the driver, so it uses only Java 8, without lambdas and type
 * parameters.
 */
public class EventQueue implements Runnable {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  /** The processes on one JVM share no class, so each publishes the name of its bus queue. */
  private static final String NAME_TAKEN = "querypulse.bus_queue.";
  /** Py4J writes a longer answer in two packets; the second one arrives 40 ms later. */
  private static final int ANSWER_CHARACTERS = 7000;
  private static final long SECOND = 1000000000L;
  private static final long GATHER_NANOS = SECOND / 10;
  private static final int ENDS_KEPT = 1000;

  private Executions executions;
  private Object context;
  /** By query id: the newest end. Only the thread of the bus queue uses it. */
  private final Map ends = new LinkedHashMap();
  private final ConcurrentLinkedQueue waiting = new ConcurrentLinkedQueue();
  private final Lane progress = new Lane();
  private final Lane lifecycle = new Lane();
  private final AtomicLong failures = new AtomicLong();
  private long given;
  private final Semaphore urgent = new Semaphore(0);
  private final Calls calls = new Calls();
  private final ConnectSessions sessions = new ConnectSessions(calls);
  private final LivingRuns runs = new LivingRuns(calls);
  private final DriverHeap heap = new DriverHeap();
  private final Neighbours neighbours = new Neighbours(calls);
  private Watchers watchers;
  private JobCounter counter;
  private final QuerypulseListener busListener = new QuerypulseListener(this);
  private final SessionListener sessionListener = new SessionListener();
  private volatile Object bus;
  private volatile String busQueue = "";
  private volatile boolean closed;
  private volatile boolean terminated;
  private long droppedBefore;
  private volatile long askedAt = System.nanoTime();
  private volatile long abandonedNanos = 900 * SECOND;

  /**
   * Prepares the queue; nothing fills it yet.
   *
   * @param own SharedState.activeStreamingQueries: a StreamExecution by query id
   * @param context the SparkContext
   * @param process an id of the Python process
   */
  public void prepare(
      Map own,
      Object context,
      String process,
      int progressCapacity,
      int lifecycleCapacity) {
    executions = new Executions(own, sessions);
    this.context = context;
    watchers = new Watchers(process);
    progress.capacity = progressCapacity;
    lifecycle.capacity = lifecycleCapacity;
    counter = new JobCounter(executions);
  }

  /**
   * Starts to receive the events of all sessions, on a listener-bus queue of our own: listeners
   * that share a queue share its thread, and would delay each other.
   *
   * @param listenerBus a LiveListenerBus, called by name: on a driver with another bus class
   *     only this way of listening fails
   */
  public synchronized boolean listenOnBus(Object listenerBus) throws Exception {
    askedAt = System.nanoTime();
    closed = false;
    // While we were not on the bus, jobs may have started and ended.
    counter.loseTrack();
    bus = listenerBus;
    takeName();
    boolean listening = false;
    try {
      if (!isOnBus()) {
        calls.call(bus, "addToQueue", new Object[] {busListener, busQueue});
      }
      listening = isOnBus();
      neighbours.text(bus);
    } finally {
      if (!listening) {
        leaveBus();
      }
    }
    return listening;
  }

  /**
   * Whether the listener bus still feeds this queue, and how many events it has dropped for us; then
   * a record for each queue of others that drops events, see Neighbours.
   */
  public String busHealth() throws Exception {
    Object from = bus;
    String queue = busQueue;
    if (from == null || queue.isEmpty()) {
      return false + FIELD + droppedBefore + neighbours.text(from);
    }
    Object registry = calls.call(calls.call(from, "metrics"), "metricRegistry");
    Object[] name = new Object[] {"queue." + queue + ".numDroppedEvents"};
    Object counter = calls.call(registry, "counter", name);
    long dropped = ((Long) calls.call(counter, "getCount")).longValue();
    if (dropped > droppedBefore) {
      droppedBefore = dropped;
      this.counter.loseTrack();
    }
    return (isOnBus() && !closed) + FIELD + dropped + neighbours.text(from);
  }

  /** For a session's addListener: it claims the session's queries for our process. */
  public StreamingQueryListener sessionListener() {
    return sessionListener;
  }

  /** Sets after how many seconds without a take the queue stops receiving. */
  public void abandonAfter(long seconds) {
    abandonedNanos = seconds * SECOND;
  }

  /** Claims a session's queries for our process; returns which processes watch this JVM now. */
  public String claim(String session) {
    watchers.claim(session);
    return watchers.beat(System.nanoTime());
  }

  /** Makes a waiting take return at once. */
  public void wake() {
    urgent.release();
  }

  /** Stops receiving and releases every reference to Spark. */
  public void close() throws Exception {
    watchers.leave();
    abandon();
    urgent.release();
    leaveBus();
  }

  /**
   * Returns a line about this queue, then the queued events, oldest first; waits up to waitMillis.
   *
   * <p>A start or an end is returned at once, progress 0.1 s after the oldest arrived: queries with
   * the same trigger commit together, and each answer costs as much as several events.
   */
  public String take(long waitMillis) throws InterruptedException {
    long deadline = System.nanoTime() + waitMillis * 1000000L;
    while (lifecycle.waiting.get() <= 0) {
      long now = System.nanoTime();
      Received oldest = (Received) waiting.peek();
      if (now >= deadline || (oldest != null && now - oldest.at >= GATHER_NANOS)) {
        break;
      }
      long due = oldest == null ? now + GATHER_NANOS : oldest.at + GATHER_NANOS;
      if (urgent.tryAcquire(Math.min(deadline, due) - now, TimeUnit.NANOSECONDS)) {
        break;
      }
    }
    urgent.drainPermits();
    return drain();
  }

  /** For each query id: jobs started and active, tasks completed and active, the longest task. */
  public String jobCounts() {
    return counter.text();
  }

  /** What finished tasks did, of the queries that have changed since an answer, see TaskCounter. */
  public String taskSums(long since) {
    return counter.tasks.text(since);
  }

  /** All active runs of the JVM: a StreamExecution by query id. */
  public Map executions() {
    return executions;
  }

  /**
   * All active runs, whether the SparkContext is stopped, and the heap: LivingRuns, DriverHeap; then
   * the sessions of Spark Connect that have ended since the last answer.
   */
  public String livingRuns() throws Exception {
    executions.refresh();
    return runs.text(executions, context) + heap.text() + sessions.ends(context);
  }

  private String drain() {
    StringBuilder answer = new StringBuilder();
    Received received = null;
    while (answer.length() < ANSWER_CHARACTERS && (received = poll()) != null) {
      given++;
      laneOf(received).waiting.decrementAndGet();
      answer.append(received.kind).append(FIELD).append(received.at).append(FIELD);
      answer.append(received.session).append(FIELD).append(received.trigger).append(FIELD);
      answer.append(received.checkpoint).append(FIELD).append(received.replaced).append(FIELD);
      answer.append(json(received.event)).append(RECORD);
    }
    long now = System.nanoTime();
    askedAt = now;
    int left = Math.max(0, progress.waiting.get() + lifecycle.waiting.get());
    String head = now + FIELD + left + FIELD + given + FIELD + progress.dropped.get() + FIELD
        + lifecycle.dropped.get() + FIELD + failures.get() + FIELD + terminated + FIELD
        + (closed ? "" : watchers.beat(now)) + RECORD;
    return head + answer;
  }

  /** Takes any event of Spark. Errors are counted and never reach Spark. */
  void receive(SparkListenerEvent event) {
    try {
      if (event instanceof StreamingQueryListener.Event) {
        offer(event);
      } else if (event instanceof SparkListenerApplicationEnd) {
        applicationEnds();
      } else {
        counter.receive(event);
      }
    } catch (Throwable error) {
      failures.incrementAndGet();
    }
  }

  /** The SparkContext stops. A JVM that shuts down has received a signal; Python may not know. */
  private void applicationEnds() throws Exception {
    Class hooks = Class.forName("org.apache.spark.util.ShutdownHookManager");
    terminated = ((Boolean) hooks.getMethod("inShutdown", new Class[0]).invoke(null, new Object[0]))
        .booleanValue();
    urgent.release();
  }

  private void offer(Object event) {
    Received received = new Received(event);
    if (received.kind.isEmpty()) {
      return;
    }
    if (event instanceof StreamingQueryListener.QueryTerminatedEvent) {
      keepEnd((StreamingQueryListener.QueryTerminatedEvent) event);
    } else if (event instanceof StreamingQueryListener.QueryStartedEvent) {
      counter.tasks.runStarts(
          String.valueOf(((StreamingQueryListener.QueryStartedEvent) event).id()));
    }
    if (!closed && received.at - askedAt > abandonedNanos) {
      // The process that took events from here is gone; nothing else removes us from the bus.
      watchers.forget();
      abandon();
      // On a thread of its own: a bus that stops waits for the thread that called us.
      Thread leaving = new Thread(this, "querypulse-leaves");
      leaving.setDaemon(true);
      leaving.start();
    }
    Lane lane = laneOf(received);
    if (closed || lane.waiting.get() >= lane.capacity) {
      lane.dropped.incrementAndGet();
      return;
    }
    describe(received);
    if (event instanceof StreamingQueryListener.QueryStartedEvent) {
      StreamingQueryListener.QueryStartedEvent started =
          (StreamingQueryListener.QueryStartedEvent) event;
      received.replaced = replacedBy(started, received.thread);
    }
    waiting.add(received);
    lane.waiting.incrementAndGet();
    if (lane == lifecycle) {
      urgent.release();
    }
  }

  private void keepEnd(StreamingQueryListener.QueryTerminatedEvent ended) {
    ends.remove(ended.id());
    ends.put(ended.id(), new End(ended.runId()));
    if (ends.size() > ENDS_KEPT) {
      Iterator oldest = ends.keySet().iterator();
      oldest.next();
      oldest.remove();
    }
  }

  /**
   * The run that Spark stopped to start this one on its checkpoint; empty if there is none.
   *
   * <p>StreamingQueryManager creates the new run, with its thread, and then stops the active one. A
   * run that is started after the end of another is created after that end, too. Spark does not say
   * when it created a run, but Java numbers threads in the order in which they are created.
   */
  private String replacedBy(StreamingQueryListener.QueryStartedEvent started, long thread) {
    End end = (End) ends.remove(started.id());
    return end != null && thread > 0 && thread < end.thread ? end.runId : "";
  }

  /** Adds what no start event has, while the run can be queried. */
  private void describe(Received received) {
    if (!(received.event instanceof StreamingQueryListener.QueryStartedEvent)) {
      return;
    }
    StreamingQueryListener.QueryStartedEvent started =
        (StreamingQueryListener.QueryStartedEvent) received.event;
    try {
      executions.refresh();
      Object execution = executions.get(started.id());
      if (execution != null && started.runId().equals(calls.call(execution, "runId"))) {
        received.trigger = String.valueOf(calls.call(execution, "trigger"));
        Object session = calls.call(execution, "sparkSession");
        received.session = String.valueOf(calls.call(session, "sessionUUID"));
        received.checkpoint = String.valueOf(calls.call(execution, "resolvedCheckpointRoot"));
        received.thread = ((Thread) calls.call(execution, "queryExecutionThread")).getId();
      }
    } catch (Exception refused) {
      // The probe tries again; if the run has ended by then, only its events are known.
    }
  }

  private Received poll() {
    return (Received) waiting.poll();
  }

  private Lane laneOf(Received received) {
    String kind = received.kind;
    return kind.equals("started") || kind.equals("terminated") ? lifecycle : progress;
  }

  /** Leaves the bus, unless it listens again by now. */
  public synchronized void run() {
    try {
      if (closed) {
        leaveBus();
      }
    } catch (Exception refused) {
      failures.incrementAndGet();
    }
  }

  private synchronized void leaveBus() throws Exception {
    Object from = bus;
    bus = null;
    try {
      if (from != null) {
        calls.call(from, "removeListener", new Object[] {busListener});
      }
    } finally {
      System.clearProperty(NAME_TAKEN + busQueue);
      busQueue = "";
    }
  }

  /** Takes the first free name: Spark keeps the metrics of each name for as long as it runs. */
  private void takeName() {
    for (int number = 1; busQueue.isEmpty(); number++) {
      String name = number == 1 ? "querypulse" : "querypulse-" + number;
      if (System.getProperties().putIfAbsent(NAME_TAKEN + name, "taken") == null) {
        busQueue = name;
      }
    }
  }

  private boolean isOnBus() throws Exception {
    Object from = bus;
    return from != null && ((List) calls.call(from, "listeners")).contains(busListener);
  }

  private void abandon() {
    closed = true;
    for (Received left = poll(); left != null; left = poll()) {
      laneOf(left).dropped.incrementAndGet();
    }
    progress.waiting.set(0);
    lifecycle.waiting.set(0);
  }

  /** The event's JSON; for an end whose JSON fails, a minimal one. */
  private String json(Object event) {
    try {
      return String.valueOf(calls.call(event, "json"));
    } catch (Exception refused) {
      if (!(event instanceof StreamingQueryListener.QueryTerminatedEvent)) {
        return "";
      }
      StreamingQueryListener.QueryTerminatedEvent ended =
          (StreamingQueryListener.QueryTerminatedEvent) event;
      String cause = ended.exception().isDefined() ? "\"UnknownError\"" : "null";
      return "{\"id\":\"" + ended.id() + "\",\"runId\":\"" + ended.runId() + "\",\"exception\":"
          + cause + "}";
    }
  }

  private static class Received {
    final String kind;
    final Object event;
    final long at = System.nanoTime();
    String session = "";
    String trigger = "";
    String checkpoint = "";
    String replaced = "";
    long thread;

    Received(Object event) {
      this.event = event;
      kind = event instanceof StreamingQueryListener.QueryStartedEvent ? "started"
          : event instanceof StreamingQueryListener.QueryTerminatedEvent ? "terminated"
          : event instanceof StreamingQueryListener.QueryIdleEvent ? "idle"
          : event instanceof StreamingQueryListener.QueryProgressEvent ? "progress" : "";
    }
  }

  /** The end of a run: the threads that exist by then have lower numbers than its own. */
  private static class End {
    final String runId;
    final long thread = new Thread().getId();

    End(Object runId) {
      this.runId = String.valueOf(runId);
    }
  }

  /** Progress, or starts and ends: how many wait, and how many were dropped. */
  private static class Lane {
    int capacity;
    final AtomicInteger waiting = new AtomicInteger();
    final AtomicLong dropped = new AtomicLong();
  }

  private class SessionListener extends StreamingQueryListener {
    public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
      Received received = new Received(event);
      describe(received);
      watchers.claim(received.session);
    }

    public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}

    public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
  }
}

/**
 * Receives what Spark posts on the listener bus, for one EventQueue.
 *
 * <p>Spark keeps a timer per listener class name, so this name never changes. An error that
 * escaped from here would stop the SparkContext.
 */
class QuerypulseListener extends SparkFirehoseListener {
  /** After a pause this long the next event finds this thread asleep. */
  private static final long ASLEEP_NANOS = 200000L;
  private static final long GATHER_NANOS = 10000000L;

  private final EventQueue queue;
  private long busyAt = System.nanoTime();

  QuerypulseListener(EventQueue queue) {
    this.queue = queue;
  }

  /**
   * Lets events that are not streaming gather after a sleep: each wake-up of this thread costs time
   * in the Spark thread that posts the event.
   */
  public void onEvent(SparkListenerEvent event) {
    if (!(event instanceof StreamingQueryListener.Event)) {
      if (System.nanoTime() - busyAt > ASLEEP_NANOS) {
        LockSupport.parkNanos(GATHER_NANOS);
      }
      busyAt = System.nanoTime();
    }
    queue.receive(event);
  }
}
