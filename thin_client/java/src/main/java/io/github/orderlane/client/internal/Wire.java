package io.github.orderlane.client.internal;

import io.github.orderlane.client.ProtocolException;
import io.github.orderlane.client.ProxyFaultException;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.TBase;
import org.apache.thrift.TConfiguration;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.transport.TMemoryBuffer;
import org.apache.thrift.transport.TMemoryInputTransport;

/**
 * Framed compact Thrift for a client: encodes calls and decodes answers. A frame is a 4-byte
 * big-endian length and that many bytes. The generated clients are not used: they cannot
 * distinguish a late answer from a lost one.
 */
final class Wire {
    /**
     * Limits an answer to 32 MiB: the maximum of the proxy's limits.max_answer_bytes, plus one
     * message inflated to 16 MiB.
     */
    static final int MAX_FRAME_BYTES = 33_554_432;

    /** Limits the elements of a list or map, so that a hostile length does not cost memory. */
    private static final long MAX_CONTAINER = 1_000_000;

    private static final int LENGTH_BYTES = 4;
    /** Up to this size a buffer is allocated before its bytes have arrived. */
    private static final int TRUSTED_BYTES = 1 << 20;

    private static final TConfiguration LIMITS =
            TConfiguration.custom()
                    .setMaxMessageSize(MAX_FRAME_BYTES)
                    .setMaxFrameSize(MAX_FRAME_BYTES)
                    .build();

    private Wire() {}

    /** Encodes the frame of a call, including its length. */
    static ByteBuffer encodeCall(String method, TBase<?, ?> arguments, int sequenceId) {
        TMemoryBuffer buffer;
        try {
            buffer = new TMemoryBuffer(512);
            buffer.write(new byte[LENGTH_BYTES], 0, LENGTH_BYTES);
            TProtocol protocol = new TCompactProtocol(buffer);
            protocol.writeMessageBegin(new TMessage(method, TMessageType.CALL, sequenceId));
            arguments.write(protocol);
            protocol.writeMessageEnd();
        } catch (TException error) { // a required field is missing: a bug of this library
            throw new IllegalStateException("cannot encode " + method, error);
        }
        ByteBuffer frame = ByteBuffer.wrap(buffer.getArray(), 0, buffer.length());
        return frame.putInt(0, buffer.length() - LENGTH_BYTES);
    }

    /** Reads the next frame, without its length. Throws ProtocolException for an invalid length. */
    static byte[] readFrame(InputStream input) throws IOException {
        byte[] head = readFully(input, LENGTH_BYTES);
        int length = ByteBuffer.wrap(head).getInt();
        if (length <= 0 || length > MAX_FRAME_BYTES) {
            throw new ProtocolException(
                    "the answer begins with " + Arrays.toString(head) + " ('"
                            + new String(head, StandardCharsets.US_ASCII)
                                    .replaceAll("[^ -~]", "?")
                            + "'), which is not a Thrift frame length:"
                            + " is this the Thrift port of an orderlane proxy?",
                    null);
        }
        return readFully(input, length);
    }

    private static byte[] readFully(InputStream input, int length) throws IOException {
        byte[] bytes;
        int read;
        if (length <= TRUSTED_BYTES) {
            bytes = new byte[length];
            read = input.readNBytes(bytes, 0, length);
        } else {
            bytes = input.readNBytes(length);
            read = bytes.length;
        }
        if (read < length) {
            throw new EOFException("closed");
        }
        return bytes;
    }

    /**
     * Fills the generated {@code *_result} struct from an answer. Throws ProxyFaultException if the
     * proxy reports a fault, ProtocolException if the bytes are invalid.
     */
    static void decodeReply(byte[] frame, TBase<?, ?> result, String method, int sequenceId) {
        TMessage head;
        TApplicationException fault = null;
        try {
            TMemoryInputTransport transport = new TMemoryInputTransport(LIMITS, frame);
            TProtocol protocol =
                    new TCompactProtocol(transport, MAX_FRAME_BYTES, MAX_CONTAINER);
            head = protocol.readMessageBegin();
            if (head.type == TMessageType.EXCEPTION) {
                fault = TApplicationException.readFrom(protocol);
            } else {
                result.read(protocol);
            }
        } catch (TException | RuntimeException error) {
            throw new ProtocolException(
                    "the answer to " + method + " cannot be decoded: " + error, error);
        }
        if (fault != null) {
            throw new ProxyFaultException(
                    "the proxy answered " + method + " with a fault: " + fault.getMessage(),
                    fault.getType() == TApplicationException.INTERNAL_ERROR);
        }
        if (head.type != TMessageType.REPLY
                || !head.name.equals(method)
                || head.seqid != sequenceId) {
            throw new ProtocolException(
                    method + " number " + sequenceId + " was answered by message type " + head.type
                            + " for '" + head.name + "' number " + head.seqid,
                    null);
        }
    }
}
