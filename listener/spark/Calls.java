import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Calls methods by name: their classes moved, and some were private, between Spark versions. */
class Calls {
  private final Map methods = new ConcurrentHashMap();

  Object call(Object on, String name) throws Exception {
    return call(on, name, new Object[0]);
  }

  Object call(Object on, String name, Object[] arguments) throws Exception {
    Map ofType = (Map) methods.get(on.getClass());
    if (ofType == null) {
      ofType = new ConcurrentHashMap();
      methods.put(on.getClass(), ofType);
    }
    Method method = (Method) ofType.get(name);
    if (method == null) {
      method = find(on.getClass(), name, arguments);
      ofType.put(name, method);
    }
    try {
      return method.invoke(on, arguments);
    } catch (InvocationTargetException error) {
      throw error.getCause() instanceof Exception ? (Exception) error.getCause() : error;
    }
  }

  private static Method find(Class type, String name, Object[] arguments) throws Exception {
    Method found = null;
    for (Class owner = type; owner != null && found == null; owner = owner.getSuperclass()) {
      found = find(owner.getDeclaredMethods(), name, arguments);
    }
    if (found != null) {
      found.setAccessible(true);
    } else {
      found = find(type.getMethods(), name, arguments);
    }
    if (found == null) {
      throw new NoSuchMethodException(type.getName() + "." + name);
    }
    return found;
  }

  private static Method find(Method[] methods, String name, Object[] arguments) {
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals(name) && accepts(methods[i].getParameterTypes(), arguments)) {
        return methods[i];
      }
    }
    return null;
  }

  private static boolean accepts(Class[] types, Object[] arguments) {
    boolean accepted = types.length == arguments.length;
    for (int i = 0; accepted && i < types.length; i++) {
      accepted = types[i].isInstance(arguments[i]);
    }
    return accepted;
  }
}
