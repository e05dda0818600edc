/** The Java client of orderlane: consumers, producers, and single calls. */
@SuppressWarnings("requires-automatic") // libthrift has a name in its manifest, which stays
module io.github.orderlane.client {
    requires org.apache.thrift;
    requires transitive org.slf4j;

    exports io.github.orderlane.client;
}
