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
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Keeps the streaming events of all sessions until Python takes them; event_queue.py reads it.
 *
 * <p>Spark's threads only append here: nothing waits, and nothing runs in Python. Janino compiles
 * this in the driver, so it keeps to Java 8 without lambdas and type parameters.
 */
public class EventQueue {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String BUS_QUEUE = "querypulse";
  /** Py4J writes a longer answer in two packets, and the second waits for 40 ms. */
  private static final int ANSWER_CHARACTERS = 7000;
  private static final long SECOND = 1000000000L;
  private static final long GATHER_NANOS = SECOND / 10;
  private static final long ABANDONED_NANOS = 900 * SECOND;

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
  private final Watchers watchers = new Watchers();
  private JobCounter counter;
  private final QuerypulseListener busListener = new QuerypulseListener(this);
  private final AtomicLong failures = new AtomicLong();
  private final SessionListener sessionListener = new SessionListener();
  private volatile Object bus;
  private volatile boolean closed;
  private volatile boolean terminated;
  private long droppedBefore;
  private volatile boolean fromSessions;
  private volatile long askedAt = System.nanoTime();
  private volatile long emptiedAt = askedAt;

  /**
   * Prepares a queue that nothing fills yet.
   *
   * @param executions SharedState.activeStreamingQueries: a StreamExecution by query id
   */
  public void prepare(Map executions, int progressCapacity, int lifecycleCapacity) {
    this.executions = executions;
    this.progressCapacity = progressCapacity;
    this.lifecycleCapacity = lifecycleCapacity;
    counter = new JobCounter(executions);
  }

  /**
   * Receives from now on the events of all sessions, on a queue of the listener bus of our own.
   *
   * @param listenerBus a LiveListenerBus: Spark's own class, called by name so that a driver whose
   *     bus is another refuses this way only
   */
  public boolean listenOnBus(Object listenerBus) throws Exception {
    open();
    bus = listenerBus;
    if (!isOnBus()) {
      call(listenerBus, "addToQueue", new Object[] {busListener, BUS_QUEUE});
    }
    return isOnBus();
  }

  /** Whether the listener bus still feeds this queue, and how many events it has dropped for us. */
  public String busHealth() throws Exception {
    Object registry = call(call(bus, "metrics"), "metricRegistry");
    String name = "queue." + BUS_QUEUE + ".numDroppedEvents";
    Object counted = call(registry, "counter", new Object[] {name});
    long dropped = ((Long) call(counted, "getCount")).longValue();
    if (dropped > droppedBefore) {
      droppedBefore = dropped;
      counter.loseTrack();
    }
    return (isOnBus() && !closed) + FIELD + dropped;
  }

  /** For addListener of a session; it passes events on only where the bus is not to be had. */
  public StreamingQueryListener sessionListener() {
    return sessionListener;
  }

  /** Whether nobody has taken from here for so long that it receives nothing any more. */
  public boolean isClosed() {
    return closed;
  }

  /** Receives from now on the events of the sessions that the session listener is added to. */
  public void listenInSessions() {
    open();
    fromSessions = true;
  }

  /** Says that the queries of a session are our process's own; who watches this JVM now. */
  public String claim(String session) {
    watchers.claim(session);
    return watchers.beat(System.nanoTime());
  }

  /** Lets a waiting take return at once. */
  public void wake() {
    urgent.release();
  }

  /** Receives nothing any more, and refers to nothing of Spark. */
  public void close() throws Exception {
    watchers.leave();
    abandon();
    Object from = bus;
    bus = null;
    urgent.release();
    if (from != null) {
      leave(from);
    }
  }

  /**
   * What has arrived, oldest first, after a line about this queue; waits for up to waitMillis.
   *
   * <p>A start or an end is given away at once, progress once in 0.1 s at most.
   */
  public String take(long waitMillis) throws InterruptedException {
    long deadline = System.nanoTime() + waitMillis * 1000000L;
    long gathered = emptiedAt + GATHER_NANOS;
    while (lifecycleWaiting.get() <= 0) {
      long now = System.nanoTime();
      if (now >= deadline || (now >= gathered && !waiting.isEmpty())) {
        break;
      }
      if (urgent.tryAcquire(Math.min(deadline - now, GATHER_NANOS), TimeUnit.NANOSECONDS)) {
        break;
      }
    }
    urgent.drainPermits();
    return drain();
  }

  /** For each query id the jobs begun and active, the tasks completed and active. */
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
    if (received == null) {
      emptiedAt = now;
    }
    askedAt = now;
    int left = Math.max(0, progressWaiting.get() + lifecycleWaiting.get());
    String head = now + FIELD + left + FIELD + given + FIELD + progressDropped.get() + FIELD
        + lifecycleDropped.get() + FIELD + failures.get() + FIELD + terminated + FIELD
        + (closed ? "" : watchers.beat(now)) + RECORD;
    return head + answer;
  }

  private void open() {
    askedAt = System.nanoTime();
    closed = false;
  }

  JobCounter counter() {
    return counter;
  }

  void failed() {
    failures.incrementAndGet();
  }

  /** The SparkContext stops; a JVM that shuts down was sent a signal, and Python may not know. */
  void applicationEnds() throws Exception {
    Class hooks = Class.forName("org.apache.spark.util.ShutdownHookManager");
    terminated = ((Boolean) hooks.getMethod("inShutdown", new Class[0]).invoke(null, new Object[0]))
        .booleanValue();
    urgent.release();
  }

  /** Appends an event; whatever goes wrong is counted, and never reaches Spark. */
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
    if (closed) {
      return;
    }
    if (now - askedAt > ABANDONED_NANOS) {
      // The process that took from here is gone, and nothing else would take us off the bus.
      watchers.forget();
      abandon();
      leaveBus();
      return;
    }
    Received received = new Received(kind, event, now);
    boolean lifecycle = received.isLifecycle();
    AtomicInteger count = lifecycle ? lifecycleWaiting : progressWaiting;
    if (count.get() >= (lifecycle ? lifecycleCapacity : progressCapacity)) {
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

  /** Adds what no event says, while the run is there to be asked. */
  private void describe(Received received, StreamingQueryListener.QueryStartedEvent started) {
    try {
      Object execution = executions.get(started.id());
      if (execution != null && started.runId().equals(call(execution, "runId"))) {
        received.trigger = String.valueOf(call(execution, "trigger"));
        received.session = String.valueOf(call(call(execution, "sparkSession"), "sessionUUID"));
      }
    } catch (Exception refused) {
      // The probe asks again; a run that has ended by then is known by its events only.
      received.session = "";
    }
  }

  private Received poll() {
    return (Received) waiting.poll();
  }

  /** On a thread of its own: the bus, when it stops, waits for the one that called us. */
  private void leaveBus() {
    final Object from = bus;
    if (from != null) {
      Thread leaving = new Thread("querypulse-leaves") {
        public void run() {
          try {
            leave(from);
          } catch (Exception refused) {
            failed();
          }
        }
      };
      leaving.setDaemon(true);
      leaving.start();
    }
  }

  private void leave(Object from) throws Exception {
    call(from, "removeListener", new Object[] {busListener});
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

  /** The event's own JSON; of an end that cannot write its own, that the query has ended. */
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
      pass(event);
      if (!fromSessions) {
        // Somebody has added us to this session: its queries are our process's own.
        Received received = new Received("started", event, 0);
        describe(received, event);
        watchers.claim(received.session);
      }
    }

    public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {
      pass(event);
    }

    public void onQueryIdle(StreamingQueryListener.QueryIdleEvent event) {
      pass(event);
    }

    public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {
      pass(event);
    }

    private void pass(Object event) {
      if (fromSessions) {
        receive(event);
      }
    }
  }
}

/**
 * Receives what Spark posts on the listener bus, for one EventQueue.
 *
 * <p>Spark keeps a timer for each name of a listener's class, so this name is always the same. What
 * escapes from here would stop the SparkContext.
 */
class QuerypulseListener extends SparkListener {
  /** An event that comes so long after the last one has found this thread asleep. */
  private static final long ASLEEP_NANOS = 200000L;
  private static final long GATHER_NANOS = 10000000L;

  private final EventQueue queue;
  private long busyAt = System.nanoTime();

  QuerypulseListener(EventQueue queue) {
    this.queue = queue;
  }

  /**
   * After a sleep, lets the events that follow gather: the thread of Spark's that posts an event
   * pays for each time that this one must be woken.
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
      queue.counter().taskStarted(event.stageId());
    } catch (Throwable error) {
      queue.failed();
    }
  }

  public void onTaskEnd(SparkListenerTaskEnd event) {
    gather();
    try {
      boolean succeeded = event.taskInfo() != null && event.taskInfo().successful();
      queue.counter().taskEnded(event.stageId(), succeeded);
    } catch (Throwable error) {
      queue.failed();
    }
  }
}
