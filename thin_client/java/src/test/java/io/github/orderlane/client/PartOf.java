package io.github.orderlane.client;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;

/** A service of which a fake has the methods that its tests call. */
final class PartOf {
    private PartOf() {}

    /**
     * Returns a {@code service} with the methods of {@code fake}. The others are not supported, so
     * a method that is added to the service changes no fake.
     */
    static <T> T service(Class<T> service, Object fake) {
        return service.cast(
                Proxy.newProxyInstance(
                        service.getClassLoader(),
                        new Class<?>[] {service},
                        (proxy, method, arguments) -> call(fake, method, arguments)));
    }

    private static Object call(Object fake, Method method, Object[] arguments) throws Throwable {
        Method own;
        try {
            own = fake.getClass().getDeclaredMethod(method.getName(), method.getParameterTypes());
        } catch (NoSuchMethodException error) {
            throw new UnsupportedOperationException(method.getName(), error);
        }
        own.setAccessible(true);
        try {
            return own.invoke(fake, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }
}
