import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The listeners of others on Spark's listener bus whose queue drops events; event_paths.py reads it.
 *
 * <p>The session's listener bus, with all its StreamingQueryListeners, is one listener on the queue
 * "streams", so Spark's own timers do not name the slow one.
 */
class Neighbours {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String PREFIX = "queue.";
  private static final String SUFFIX = ".numDroppedEvents";
  /** What is lost there is Spark's; vendors put listeners there too. */
  private static final String OF_SPARK = " appStatus eventLog executorManagement ";
  private static final String PYTHON = "a Python listener";
  private static final int NAMED = 20;

  private final Calls calls;
  /** By name: each queue that had dropped events at the last look. */
  private final Map queues = new TreeMap();
  private boolean looked;

  Neighbours(Calls calls) {
    this.calls = calls;
  }

  /**
   * Returns a record for each queue that has dropped events of others since the first call: its
   * name, how many, the listener last seen at work meanwhile, and the classes of all on it.
   */
  synchronized String text(Object bus) {
    try {
      look(bus);
    } catch (Exception refused) {
      // Another bus class than Spark's.
    }
    StringBuilder text = new StringBuilder();
    for (Iterator each = queues.values().iterator(); each.hasNext();) {
      Queue queue = (Queue) each.next();
      if (!queue.listeners.isEmpty()) {
        text.append(RECORD).append(queue.name).append(FIELD).append(queue.dropped - queue.before);
        text.append(FIELD).append(queue.busy).append(queue.listeners);
      }
    }
    return text.toString();
  }

  private void look(Object bus) throws Exception {
    Object registry = calls.call(calls.call(bus, "metrics"), "metricRegistry");
    Iterator counters = ((Map) calls.call(registry, "getCounters")).entrySet().iterator();
    while (counters.hasNext()) {
      Map.Entry counter = (Map.Entry) counters.next();
      String metric = (String) counter.getKey();
      if (metric.startsWith(PREFIX) && metric.endsWith(SUFFIX)) {
        String name = metric.substring(PREFIX.length(), metric.length() - SUFFIX.length());
        long dropped = ((Long) calls.call(counter.getValue(), "getCount")).longValue();
        boolean isOfOthers = !name.startsWith("querypulse") && !OF_SPARK.contains(" " + name + " ");
        if (isOfOthers && dropped > 0) {
          count(name, dropped, bus);
        }
      }
    }
    looked = true;
  }

  private void count(String name, long dropped, Object bus) throws Exception {
    Queue queue = (Queue) queues.get(name);
    if (queue == null) {
      queue = new Queue(name, looked ? 0 : dropped);
      queues.put(name, queue);
    }
    if (dropped > queue.dropped) {
      queue.dropped = dropped;
      describe(queue, bus);
    }
  }

  private void describe(Queue queue, Object bus) throws Exception {
    for (Iterator each = ((List) field(bus, "queues")).iterator(); each.hasNext();) {
      Object ofBus = each.next();
      if (queue.name.equals(calls.call(ofBus, "name"))) {
        Map labels = new LinkedHashMap();
        label((List) calls.call(ofBus, "listeners"), labels);
        queue.name(labels, ((Thread) field(ofBus, "dispatchThread")).getStackTrace());
      }
    }
  }

  /** Adds the listeners that are neither Spark's nor ours, by the name of their class. */
  private void label(List listeners, Map labels) throws Exception {
    for (Iterator each = listeners.iterator(); each.hasNext();) {
      Object listener = each.next();
      String type = listener.getClass().getName();
      if (isPython(listener, type)) {
        labels.put(type, PYTHON);
      } else if (type.startsWith("org.apache.spark.")) {
        // A session's bus has listeners of its own.
        if (type.endsWith("ListenerBus")) {
          label((List) calls.call(listener, "listeners"), labels);
        }
      } else if (!type.startsWith("EventQueue_")) {
        labels.put(type, type);
      }
    }
  }

  private static boolean isPython(Object listener, String type) {
    return type.endsWith(".PythonStreamingQueryListenerWrapper")
        || (Proxy.isProxyClass(listener.getClass())
            && Proxy.getInvocationHandler(listener).getClass().getName().startsWith("py4j."));
  }

  private static Object field(Object of, String name) throws Exception {
    for (Class owner = of.getClass(); owner != null; owner = owner.getSuperclass()) {
      Field[] fields = owner.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        if (fields[i].getName().equals(name)) {
          fields[i].setAccessible(true);
          return fields[i].get(of);
        }
      }
    }
    throw new NoSuchFieldException(of.getClass().getName() + "." + name);
  }

  private static class Queue {
    final String name;
    final long before;
    long dropped;
    String busy = "";
    String listeners = "";

    Queue(String name, long before) {
      this.name = name;
      this.before = before;
      dropped = before;
    }

    void name(Map labels, StackTraceElement[] stack) {
      Object label = null;
      for (int i = 0; label == null && i < stack.length; i++) {
        label = labels.get(stack[i].getClassName());
      }
      busy = label == null ? busy : (String) label;
      Iterator distinct = new TreeSet(labels.values()).iterator();
      listeners = "";
      for (int i = 0; distinct.hasNext() && i < NAMED; i++) {
        listeners += FIELD + distinct.next();
      }
    }
  }
}
