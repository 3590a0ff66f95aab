import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import javax.management.openmbean.CompositeData;
import javax.management.openmbean.TabularData;

/** Reads the heap of this JVM, at most every few seconds; execution.py parses it. */
class DriverHeap {
  private static final String FIELD = "\u001f";
  private static final long PAUSE_NANOSECONDS = 5000000000L;

  private final List pools = new ArrayList();
  private final List names = new ArrayList();
  private boolean wasRead;
  private long readAt;

  DriverHeap() {
    for (Iterator beans = ManagementFactory.getMemoryPoolMXBeans().iterator(); beans.hasNext(); ) {
      MemoryPoolMXBean pool = (MemoryPoolMXBean) beans.next();
      if (pool.getType() == MemoryType.HEAP) {
        pools.add(pool);
        names.add(pool.getName());
      }
    }
  }

  /**
   * Bytes in use, bytes that the last collection of the whole heap left, the maximum, milliseconds
   * in collections that stop the threads, and how many collections of the whole heap there were;
   * empty where it is not due, or not known.
   *
   * <p>What works beside the threads has beans of its own: the "Cycles" of ZGC and Shenandoah,
   * "G1 Concurrent GC", "ConcurrentMarkSweep".
   */
  String text() {
    long now = System.nanoTime();
    if (wasRead && now - readAt < PAUSE_NANOSECONDS) {
      return "";
    }
    wasRead = true;
    readAt = now;
    try {
      return read();
    } catch (Exception refused) {
      return "";
    }
  }

  private String read() throws Exception {
    MemoryUsage heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
    if (heap.getMax() <= 0) {
      return "";
    }
    long paused = 0;
    long collections = 0;
    CompositeData newest = null;
    Iterator beans = ManagementFactory.getGarbageCollectorMXBeans().iterator();
    while (beans.hasNext()) {
      GarbageCollectorMXBean collector = (GarbageCollectorMXBean) beans.next();
      String name = collector.getName();
      boolean isConcurrent = name.indexOf("Concurrent") >= 0;
      if (!isConcurrent && !name.endsWith("Cycles")) {
        paused += Math.max(0, collector.getCollectionTime());
      }
      if (freesAll(collector)) {
        collections += Math.max(0, collector.getCollectionCount());
        newest = newer(newest, lastOf(collector));
      }
    }
    String left = collections == 0 ? "" : String.valueOf(newest == null ? kept() : after(newest));
    return heap.getUsed() + FIELD + left + FIELD + heap.getMax() + FIELD + paused + FIELD
        + collections;
  }

  /**
   * Whether it frees old objects, too: what a young collection ("Copy", "PS Scavenge", "ParNew")
   * leaves has their garbage in it, up to the maximum.
   *
   * <p>G1 frees them in young collections once it has marked them, from 45% of the heap on. No bean
   * before Java 20 says when it has. The "Pauses" of ZGC and Shenandoah free nothing.
   */
  private boolean freesAll(GarbageCollectorMXBean collector) {
    String name = collector.getName();
    if (name.endsWith("Pauses") || name.indexOf("Minor") >= 0 || name.indexOf("Concurrent") >= 0) {
      return false;
    }
    boolean isAll = Arrays.asList(collector.getMemoryPoolNames()).containsAll(names);
    // G1 of Java 8 names only the pools of young objects.
    return isAll || name.equals("G1 Young Generation");
  }

  /** What com.sun.management calls GcInfo; null before the first one, and where there is none. */
  private static CompositeData lastOf(GarbageCollectorMXBean collector) {
    try {
      return (CompositeData) ManagementFactory.getPlatformMBeanServer()
          .getAttribute(collector.getObjectName(), "LastGcInfo");
    } catch (Exception missing) {
      return null;
    }
  }

  private static CompositeData newer(CompositeData one, CompositeData other) {
    if (one == null || other == null) {
      return one == null ? other : one;
    }
    long ended = ((Long) one.get("endTime")).longValue();
    return ((Long) other.get("endTime")).longValue() >= ended ? other : one;
  }

  private long after(CompositeData collection) {
    TabularData usage = (TabularData) collection.get("memoryUsageAfterGc");
    long bytes = 0;
    for (Iterator heap = pools.iterator(); heap.hasNext(); ) {
      CompositeData row = usage.get(new Object[] {((MemoryPoolMXBean) heap.next()).getName()});
      if (row != null) {
        bytes += ((Long) ((CompositeData) row.get("value")).get("used")).longValue();
      }
    }
    return bytes;
  }

  /** What each pool held after the collection that last freed it: less than all of them hold. */
  private long kept() {
    long bytes = 0;
    for (Iterator heap = pools.iterator(); heap.hasNext(); ) {
      MemoryUsage usage = ((MemoryPoolMXBean) heap.next()).getCollectionUsage();
      bytes += usage == null ? 0 : usage.getUsed();
    }
    return bytes;
  }
}
