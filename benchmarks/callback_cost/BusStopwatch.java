import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.apache.spark.sql.streaming.StreamingQueryListener;

/**
 * Replaces another listener on its listener-bus queue and times its progress events.
 *
 * <p>By the thread's time on a CPU: ours rests there, to let events gather.
 */
public class BusStopwatch extends SparkListener {
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private final SparkListenerInterface timed;
  private final ConcurrentLinkedQueue lines = new ConcurrentLinkedQueue();
  private volatile SparkListenerEvent last;

  public BusStopwatch(SparkListenerInterface timed) {
    this.timed = timed;
  }

  public void onOtherEvent(SparkListenerEvent event) {
    long began = THREADS.getCurrentThreadCpuTime();
    timed.onOtherEvent(event);
    long nanos = THREADS.getCurrentThreadCpuTime() - began;
    if (event instanceof StreamingQueryListener.QueryProgressEvent) {
      StreamingQueryListener.QueryProgressEvent it =
          (StreamingQueryListener.QueryProgressEvent) event;
      lines.add(it.progress().runId() + "/" + it.progress().batchId() + " " + nanos);
      last = event;
    }
  }

  /** One line for each progress event so far: which one, how many nanoseconds. */
  public String read() {
    return String.join("\n", lines);
  }

  /** The newest progress event. */
  public SparkListenerEvent last() {
    return last;
  }
}
