import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/**
 * What a Spark Connect service in this JVM shows: the runs of its sessions, and which have ended.
 *
 * <p>Only fields are read: to ask for a session refreshes its access time, so that it would never
 * expire. A version of Spark that lacks one of them shows as much as a driver without a service.
 */
class ConnectSessions {
  private static final String FIELD = "\u001f";
  private static final String RECORD = "\u001e";
  private static final String GROUP = "\u001d";
  private static final String SERVICE =
      "org.apache.spark.sql.connect.service.SparkConnectService$";
  private static final String TIME_OUT = "spark.connect.session.manager.defaultSessionTimeout";

  private final Calls calls;
  private Object service;
  private boolean isRefused;
  private boolean showsRuns = true;
  private boolean showsEnds = true;
  /** By key: the ends that were reported; Spark keeps the newest 1,000. */
  private Map known = new HashMap();

  ConnectSessions(Calls calls) {
    this.calls = calls;
  }

  /**
   * SharedState.activeStreamingQueries of the service's sessions; null where there is none.
   *
   * <p>Its first client may come before PySpark has made a session. From Spark 4.1 on, the service
   * then makes its own, with a SharedState of its own.
   */
  synchronized Map executions() {
    Object manager = showsRuns ? manager() : null;
    try {
      Object base = manager == null ? null : calls.call(manager, "_baseSession");
      if (base == null || !Boolean.TRUE.equals(calls.call(base, "isDefined"))) {
        return null;
      }
      Object shared = calls.call(calls.call(base, "get"), "sharedState");
      return (Map) calls.call(shared, "activeStreamingQueries");
    } catch (Throwable refused) {
      showsRuns = false;
      return null;
    }
  }

  /**
   * For each session that has ended since the last call: Spark's id of it, the user, the client's
   * id; and in milliseconds how long ago it ended, for how long its client had made no call by
   * then, and for how long it may make none. Empty where nothing shows that.
   */
  synchronized String ends(Object context) {
    Object manager = showsEnds ? manager() : null;
    if (manager == null) {
      return "";
    }
    StringBuilder answer = new StringBuilder(GROUP);
    try {
      Map closed = (Map) calls.call(calls.call(manager, "closedSessionsCache"), "asMap");
      Map before = known;
      known = new HashMap();
      for (Iterator entries = closed.entrySet().iterator(); entries.hasNext(); ) {
        Map.Entry entry = (Map.Entry) entries.next();
        known.put(entry.getKey(), "");
        if (!before.containsKey(entry.getKey())) {
          answer.append(describe(entry.getValue(), context)).append(RECORD);
        }
      }
    } catch (Throwable refused) {
      showsEnds = false;
      return "";
    }
    return answer.toString();
  }

  private String describe(Object session, Object context) throws Exception {
    // While its queries are being stopped, it has no such time yet.
    Object closed = calls.call(session, "closedTimeMs");
    long now = System.currentTimeMillis();
    long closedAt = Boolean.TRUE.equals(calls.call(closed, "isDefined"))
        ? ((Long) calls.call(closed, "get")).longValue()
        : now;
    long idle = closedAt - ((Long) calls.call(session, "lastAccessTimeMs")).longValue();
    Object own = calls.call(session, "customInactiveTimeoutMs");
    Object allowed = Boolean.TRUE.equals(calls.call(own, "isDefined"))
        ? calls.call(own, "get")
        : calls.call(calls.call(context, "conf"), "getTimeAsMs", new Object[] {TIME_OUT, "60m"});
    return calls.call(session, "serverSessionId") + FIELD + clean(calls.call(session, "userId"))
        + FIELD + clean(calls.call(session, "sessionId")) + FIELD + (now - closedAt) + FIELD + idle
        + FIELD + allowed;
  }

  /** The sessions of the service that runs; null without one. */
  private Object manager() {
    if (isRefused) {
      return null;
    }
    try {
      if (service == null) {
        service = loaded();
      }
      boolean runs = service != null && calls.call(service, "server") != null;
      return runs ? calls.call(service, "sessionManager") : null;
    } catch (Throwable refused) {
      isRefused = true;
      return null;
    }
  }

  /** The service; null where nobody has used it: to load its class here would cost a driver time. */
  private Object loaded() throws Exception {
    ClassLoader loader = getClass().getClassLoader();
    for (; loader != null; loader = loader.getParent()) {
      Class type = (Class) calls.call(loader, "findLoadedClass", new Object[] {SERVICE});
      if (type != null) {
        return type.getField("MODULE$").get(null);
      }
    }
    return null;
  }

  private static String clean(Object text) {
    return String.valueOf(text).replace(FIELD, " ").replace(RECORD, " ").replace(GROUP, " ");
  }
}
