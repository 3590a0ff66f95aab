import org.apache.spark.sql.streaming.StreamingQueryListener;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Waits a while in every progress event, without CPU and without Python, until it is freed. */
public final class BlockingListener extends StreamingQueryListener {
  private final CountDownLatch freed = new CountDownLatch(1);
  private final long milliseconds;

  public BlockingListener(Object milliseconds) {
    this.milliseconds = ((Number) milliseconds).longValue();
  }

  public void free() {
    freed.countDown();
  }

  @Override
  public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {}

  @Override
  public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {
    try {
      freed.await(milliseconds, TimeUnit.MILLISECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public void onQueryIdle(StreamingQueryListener.QueryIdleEvent event) {}

  @Override
  public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {}
}
