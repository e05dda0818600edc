package io.github.orderlane.client.internal;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** Makes a TLS context from PEM files. */
public final class PemContext {
    private static final Pattern BLOCK =
            Pattern.compile("-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END \\1-----");
    private static final List<String> ALGORITHMS = List.of("RSA", "EC", "Ed25519", "Ed448");

    private PemContext() {}

    /** Each file may be null. Throws IllegalArgumentException that names an unusable file. */
    public static SSLContext of(Path authorities, Path certificate, Path key) {
        try {
            TrustManager[] trust = authorities == null ? null : trust(authorities);
            KeyManager[] own = certificate == null ? null : own(certificate, key);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(own, trust, null);
            return context;
        } catch (GeneralSecurityException | IOException error) {
            throw new IllegalArgumentException("TLS cannot be set up: " + error, error);
        }
    }

    private static TrustManager[] trust(Path file) throws GeneralSecurityException, IOException {
        KeyStore store = emptyStore();
        for (Certificate each : certificates(file)) {
            store.setCertificateEntry("authority-" + store.size(), each);
        }
        TrustManagerFactory factory =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private static KeyManager[] own(Path certificate, Path key)
            throws GeneralSecurityException, IOException {
        Certificate[] chain = certificates(certificate).toArray(Certificate[]::new);
        KeyStore store = emptyStore();
        store.setKeyEntry("client", privateKey(key), new char[0], chain);
        KeyManagerFactory factory =
                KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, new char[0]);
        return factory.getKeyManagers();
    }

    private static KeyStore emptyStore() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static List<Certificate> certificates(Path file) throws GeneralSecurityException {
        List<Certificate> found = new ArrayList<>();
        Matcher block = BLOCK.matcher(text(file));
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        while (block.find()) {
            if (block.group(1).equals("CERTIFICATE")) {
                byte[] bytes = decoded(block.group(2), file);
                found.add(factory.generateCertificate(new ByteArrayInputStream(bytes)));
            }
        }
        if (found.isEmpty()) {
            throw new IllegalArgumentException(file + " holds no certificate in PEM form");
        }
        return found;
    }

    private static PrivateKey privateKey(Path file) {
        Matcher block = BLOCK.matcher(text(file));
        while (block.find()) {
            if (block.group(1).equals("PRIVATE KEY")) {
                return privateKey(decoded(block.group(2), file), file);
            }
            if (block.group(1).endsWith("PRIVATE KEY")) {
                throw new IllegalArgumentException(
                        file + " holds a key of the form '" + block.group(1)
                                + "': expected an unencrypted 'PRIVATE KEY' (PKCS #8);"
                                + " convert it with 'openssl pkcs8 -topk8 -nocrypt'");
            }
        }
        throw new IllegalArgumentException(file + " holds no private key in PEM form");
    }

    private static PrivateKey privateKey(byte[] bytes, Path file) {
        for (String algorithm : ALGORITHMS) {
            try {
                return KeyFactory.getInstance(algorithm)
                        .generatePrivate(new PKCS8EncodedKeySpec(bytes));
            } catch (GeneralSecurityException other) {
                // try the next algorithm
            }
        }
        throw new IllegalArgumentException(file + " holds a private key that is not one of "
                + String.join(", ", ALGORITHMS));
    }

    private static String text(Path file) {
        try {
            return Files.readString(file, StandardCharsets.ISO_8859_1);
        } catch (IOException error) {
            throw new IllegalArgumentException(file + " cannot be read: " + error, error);
        }
    }

    private static byte[] decoded(String text, Path file) {
        try {
            return Base64.getMimeDecoder().decode(text);
        } catch (IllegalArgumentException error) {
            throw new IllegalArgumentException(file + " is damaged: " + error.getMessage(), error);
        }
    }
}
