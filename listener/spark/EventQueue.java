import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Queues the streaming events of all sessions until Python takes them; event_paths.py reads it.
 *
 * <p>Spark's threads only append: they do not wait here and run no Python. Janino compiles this
 * class in the driver, so it uses only Java 8, without lambdas and type parameters.
 */
public class EventQueue {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  /** Py4J writes a longer answer in two packets; the second one arrives 40 ms later. */
  private static final int ANSWER_CHARACTERS = 7000;
  private static final long SECOND = 1000000000L;
  private static final long GATHER_NANOS = SECOND / 10;

  private Map executions;
  private int progressCapacity;
  private int lifecycleCapacity;
  private final ConcurrentLinkedQueue waiting = new ConcurrentLinkedQueue();
  private final AtomicInteger progressWaiting = new AtomicInteger();
  private final AtomicInteger lifecycleWaiting = new AtomicInteger();
  private final AtomicLong progressDropped = new AtomicLong();
  private final AtomicLong lifecycleDropped = new AtomicLong();
  private long given;
  private final Semaphore urgent = new Semaphore(0);
  private final BusQueueName busQueue = new BusQueueName();
  private Watchers watchers;
  private JobCounter counter;
  private final QuerypulseListener busListener = new QuerypulseListener(this);
  private final AtomicLong failures = new AtomicLong();
  private final SessionListener sessionListener = new SessionListener();
  private volatile Object bus;
  private volatile boolean closed;
  private volatile boolean terminated;
  private long droppedBefore;
  private volatile long askedAt = System.nanoTime();
  private volatile long abandonedNanos = 900 * SECOND;

  /**
   * Prepares the queue; nothing fills it yet.
   *
   * @param executions SharedState.activeStreamingQueries: a StreamExecution by query id
   * @param process an id of the Python process
   */
  public void prepare(
      Map executions, String process, int progressCapacity, int lifecycleCapacity) {
    this.executions = executions;
    watchers = new Watchers(process);
    this.progressCapacity = progressCapacity;
    this.lifecycleCapacity = lifecycleCapacity;
    counter = new JobCounter(executions);
  }

  /**
   * Starts to receive the events of all sessions, on a listener-bus queue of our own.
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
    boolean listening = false;
    try {
      if (!isOnBus()) {
        call(listenerBus, "addToQueue", new Object[] {busListener, busQueue.take()});
      }
      listening = isOnBus();
    } finally {
      if (!listening) {
        bus = null;
        leave(listenerBus, true);
      }
    }
    return listening;
  }

  /** Whether the listener bus still feeds this queue, and how many events it has dropped for us. */
  public String busHealth() throws Exception {
    Object from = bus;
    String queue = busQueue.get();
    if (from == null || queue.isEmpty()) {
      return false + FIELD + droppedBefore;
    }
    Object registry = call(call(from, "metrics"), "metricRegistry");
    String name = "queue." + queue + ".numDroppedEvents";
    Object counted = call(registry, "counter", new Object[] {name});
    long dropped = ((Long) call(counted, "getCount")).longValue();
    if (dropped > droppedBefore) {
      droppedBefore = dropped;
      counter.loseTrack();
    }
    return (isOnBus() && !closed) + FIELD + dropped;
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
    Object from = bus;
    bus = null;
    urgent.release();
    if (from != null) {
      leave(from, true);
    }
  }

  /**
   * Returns a line about this queue, then the queued events, oldest first; waits up to waitMillis.
   *
   * <p>A start or an end is returned at once, progress 0.1 s after the oldest arrived: queries with
   * the same trigger commit together, and each answer costs as much as several events.
   */
  public String take(long waitMillis) throws InterruptedException {
    long deadline = System.nanoTime() + waitMillis * 1000000L;
    while (lifecycleWaiting.get() <= 0) {
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

  private String drain() {
    StringBuilder answer = new StringBuilder();
    Received received = null;
    while (answer.length() < ANSWER_CHARACTERS && (received = poll()) != null) {
      given++;
      (received.isLifecycle() ? lifecycleWaiting : progressWaiting).decrementAndGet();
      answer.append(received.kind).append(FIELD).append(received.at).append(FIELD);
      answer.append(received.session).append(FIELD).append(received.trigger).append(FIELD);
      answer.append(json(received)).append(RECORD);
    }
    long now = System.nanoTime();
    askedAt = now;
    int left = Math.max(0, progressWaiting.get() + lifecycleWaiting.get());
    String head = now + FIELD + left + FIELD + given + FIELD + progressDropped.get() + FIELD
        + lifecycleDropped.get() + FIELD + failures.get() + FIELD + terminated + FIELD
        + (closed ? "" : watchers.beat(now)) + RECORD;
    return head + answer;
  }

  JobCounter counter() {
    return counter;
  }

  void failed() {
    failures.incrementAndGet();
  }

  /** The SparkContext stops. A JVM that shuts down has received a signal; Python may not know. */
  void applicationEnds() throws Exception {
    Class hooks = Class.forName("org.apache.spark.util.ShutdownHookManager");
    terminated = ((Boolean) hooks.getMethod("inShutdown", new Class[0]).invoke(null, new Object[0]))
        .booleanValue();
    urgent.release();
  }

  /** Appends an event. Errors are counted and never reach Spark. */
  void receive(Object event) {
    try {
      if (event instanceof StreamingQueryListener.QueryProgressEvent) {
        offer("progress", event);
      } else if (event instanceof StreamingQueryListener.QueryIdleEvent) {
        offer("idle", event);
      } else if (event instanceof StreamingQueryListener.QueryStartedEvent) {
        offer("started", event);
      } else if (event instanceof StreamingQueryListener.QueryTerminatedEvent) {
        offer("terminated", event);
      }
    } catch (Throwable error) {
      failed();
    }
  }

  private void offer(String kind, Object event) {
    long now = System.nanoTime();
    if (!closed && now - askedAt > abandonedNanos) {
      // The process that took events from here is gone; nothing else removes us from the bus.
      watchers.forget();
      abandon();
      leaveBus();
    }
    Received received = new Received(kind, event, now);
    boolean lifecycle = received.isLifecycle();
    AtomicInteger count = lifecycle ? lifecycleWaiting : progressWaiting;
    if (closed || count.get() >= (lifecycle ? lifecycleCapacity : progressCapacity)) {
      (lifecycle ? lifecycleDropped : progressDropped).incrementAndGet();
      return;
    }
    if (event instanceof StreamingQueryListener.QueryStartedEvent) {
      describe(received, (StreamingQueryListener.QueryStartedEvent) event);
    }
    waiting.add(received);
    count.incrementAndGet();
    if (lifecycle) {
      urgent.release();
    }
  }

  /** Adds the trigger and the session, which no event carries, while the run can be queried. */
  private void describe(Received received, StreamingQueryListener.QueryStartedEvent started) {
    try {
      Object execution = executions.get(started.id());
      if (execution != null && started.runId().equals(call(execution, "runId"))) {
        received.trigger = String.valueOf(call(execution, "trigger"));
        received.session = String.valueOf(call(call(execution, "sparkSession"), "sessionUUID"));
      }
    } catch (Exception refused) {
      // The probe tries again; if the run has ended by then, only its events are known.
      received.session = "";
    }
  }

  private Received poll() {
    return (Received) waiting.poll();
  }

  /** On a thread of its own: a bus that stops waits for the thread that called us. */
  private void leaveBus() {
    final Object from = bus;
    if (from != null) {
      Thread leaving = new Thread("querypulse-leaves") {
        public void run() {
          try {
            leave(from, false);
          } catch (Exception refused) {
            failed();
          }
        }
      };
      leaving.setDaemon(true);
      leaving.start();
    }
  }

  private synchronized void leave(Object from, boolean isOpen) throws Exception {
    // Unless it listens again by now.
    if (isOpen || closed) {
      try {
        call(from, "removeListener", new Object[] {busListener});
      } finally {
        busQueue.release();
      }
    }
  }

  private boolean isOnBus() throws Exception {
    Object from = bus;
    return from != null && ((List) call(from, "listeners")).contains(busListener);
  }

  private void abandon() {
    closed = true;
    for (Received left = poll(); left != null; left = poll()) {
      (left.isLifecycle() ? lifecycleDropped : progressDropped).incrementAndGet();
    }
    progressWaiting.set(0);
    lifecycleWaiting.set(0);
  }

  /** The event's JSON; for an end whose JSON fails, a minimal one. */
  private static String json(Received received) {
    try {
      return String.valueOf(call(received.event, "json"));
    } catch (Exception refused) {
      if (received.event instanceof StreamingQueryListener.QueryTerminatedEvent) {
        return endedJson((StreamingQueryListener.QueryTerminatedEvent) received.event);
      }
      return "";
    }
  }

  private static String endedJson(StreamingQueryListener.QueryTerminatedEvent ended) {
    String cause = ended.exception().isDefined() ? "\"UnknownError\"" : "null";
    return "{\"id\":\"" + ended.id() + "\",\"runId\":\"" + ended.runId() + "\",\"exception\":"
        + cause + "}";
  }

  private static Object call(Object on, String method) throws Exception {
    return on.getClass().getMethod(method, new Class[0]).invoke(on, new Object[0]);
  }

  private static Object call(Object on, String name, Object[] arguments) throws Exception {
    Method[] methods = on.getClass().getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals(name) && accepts(methods[i].getParameterTypes(), arguments)) {
        return methods[i].invoke(on, arguments);
      }
    }
    throw new NoSuchMethodException(on.getClass().getName() + "." + name);
  }

  private static boolean accepts(Class[] types, Object[] arguments) {
    boolean accepted = types.length == arguments.length;
    for (int i = 0; accepted && i < types.length; i++) {
      accepted = types[i].isInstance(arguments[i]);
    }
    return accepted;
  }

  private static class Received {
    final String kind;
    final Object event;
    final long at;
    String session = "";
    String trigger = "";

    Received(String kind, Object event, long at) {
      this.kind = kind;
      this.event = event;
      this.at = at;
    }

    boolean isLifecycle() {
      return kind.equals("started") || kind.equals("terminated");
    }
  }

  private class SessionListener extends StreamingQueryListener {
    public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
      Received received = new Received("started", event, 0);
      describe(received, event);
      watchers.claim(received.session);
    }

    public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}

    public void onQueryIdle(StreamingQueryListener.QueryIdleEvent event) {}

    public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
  }
}

/**
 * Receives what Spark posts on the listener bus, for one EventQueue.
 *
 * <p>Spark keeps a timer per listener class name, so this name never changes. An error that
 * escaped from here would stop the SparkContext.
 */
class QuerypulseListener extends SparkListener {
  /** After a pause this long the next event finds this thread asleep. */
  private static final long ASLEEP_NANOS = 200000L;
  private static final long GATHER_NANOS = 10000000L;

  private final EventQueue queue;
  private long busyAt = System.nanoTime();

  QuerypulseListener(EventQueue queue) {
    this.queue = queue;
  }

  /**
   * Lets events gather after a sleep: each wake-up of this thread costs time in the Spark thread
   * that posts the event.
   */
  private void gather() {
    if (System.nanoTime() - busyAt > ASLEEP_NANOS) {
      LockSupport.parkNanos(GATHER_NANOS);
    }
    busyAt = System.nanoTime();
  }

  public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof StreamingQueryListener.Event) {
      queue.receive(event);
    } else {
      gather();
    }
  }

  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    try {
      queue.applicationEnds();
    } catch (Throwable error) {
      queue.failed();
    }
  }

  public void onJobStart(SparkListenerJobStart event) {
    gather();
    try {
      queue.counter().jobStarted(event.jobId(), event.properties());
    } catch (Throwable error) {
      queue.failed();
    }
  }

  public void onJobEnd(SparkListenerJobEnd event) {
    gather();
    try {
      queue.counter().jobEnded(event.jobId());
    } catch (Throwable error) {
      queue.failed();
    }
  }

  public void onStageSubmitted(SparkListenerStageSubmitted event) {
    gather();
    try {
      queue.counter().stageStarted(event.stageInfo().stageId(), event.properties());
    } catch (Throwable error) {
      queue.failed();
    }
  }

  public void onStageCompleted(SparkListenerStageCompleted event) {
    gather();
    try {
      queue.counter().stageEnded(event.stageInfo().stageId());
    } catch (Throwable error) {
      queue.failed();
    }
  }

  public void onTaskStart(SparkListenerTaskStart event) {
    gather();
    try {
      TaskInfo task = event.taskInfo();
      queue.counter().taskStarted(event.stageId(), task.taskId(), task.partitionId(), task.host());
    } catch (Throwable error) {
      queue.failed();
    }
  }

  public void onTaskEnd(SparkListenerTaskEnd event) {
    gather();
    try {
      TaskInfo task = event.taskInfo();
      boolean succeeded = task != null && task.successful();
      queue.counter().taskEnded(event.stageId(), task == null ? -1L : task.taskId(), succeeded);
    } catch (Throwable error) {
      queue.failed();
    }
  }
}
