// SPDX-License-Identifier: Apache-2.0
package cluster;

import java.io.IOException;
import java.io.StringWriter;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.Date;
import javax.security.auth.x500.X500Principal;
import org.bouncycastle.asn1.x509.BasicConstraints;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.GeneralName;
import org.bouncycastle.asn1.x509.GeneralNames;
import org.bouncycastle.asn1.x509.KeyUsage;
import org.bouncycastle.cert.jcajce.JcaX509v3CertificateBuilder;
import org.bouncycastle.cert.jcajce.JcaX509ExtensionUtils;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;

/** Authorities and certificates for servers on loopback and for clients, good for a day. */
final class Certificates {
    private final String authority;
    private final KeyPair authorityKeys;

    private Certificates(String authority) throws Exception {
        this.authority = authority;
        authorityKeys = newKeys();
    }

    /** certificates DIR: ca.pem, server.pem, server.key, client.pem, client.key; and other-ca.pem, which signed none of them. */
    static boolean run(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        Files.createDirectories(directory);
        Certificates known = new Certificates("CN=known authority");
        known.writeAuthority(directory.resolve("ca.pem"));
        known.issue(directory, "server");
        known.issue(directory, "client");
        new Certificates("CN=other authority").writeAuthority(directory.resolve("other-ca.pem"));
        return true;
    }

    private static KeyPair newKeys() throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        return generator.generateKeyPair();
    }

    private void writeAuthority(Path file) throws Exception {
        JcaX509v3CertificateBuilder builder = builder(authority, authorityKeys);
        builder.addExtension(Extension.basicConstraints, true, new BasicConstraints(true));
        builder.addExtension(Extension.keyUsage, true, new KeyUsage(KeyUsage.keyCertSign | KeyUsage.cRLSign));
        write(file, "CERTIFICATE", signed(builder));
    }

    private void issue(Path directory, String name) throws Exception {
        KeyPair keys = newKeys();
        JcaX509v3CertificateBuilder builder = builder("CN=" + name, keys);
        builder.addExtension(Extension.subjectAlternativeName, false, new GeneralNames(new GeneralName[] {
            new GeneralName(GeneralName.iPAddress, "127.0.0.1"), new GeneralName(GeneralName.dNSName, "localhost")}));
        write(directory.resolve(name + ".pem"), "CERTIFICATE", signed(builder));
        write(directory.resolve(name + ".key"), "PRIVATE KEY", keys.getPrivate().getEncoded());
    }

    private JcaX509v3CertificateBuilder builder(String subject, KeyPair keys) throws Exception {
        Instant now = Instant.now();
        JcaX509v3CertificateBuilder builder = new JcaX509v3CertificateBuilder(new X500Principal(authority),
            BigInteger.valueOf(System.nanoTime()), Date.from(now.minus(Duration.ofHours(1))),
            Date.from(now.plus(Duration.ofDays(1))), new X500Principal(subject), keys.getPublic());
        JcaX509ExtensionUtils extensions = new JcaX509ExtensionUtils();
        builder.addExtension(Extension.subjectKeyIdentifier, false, extensions.createSubjectKeyIdentifier(keys.getPublic()));
        builder.addExtension(Extension.authorityKeyIdentifier, false,
            extensions.createAuthorityKeyIdentifier(authorityKeys.getPublic()));
        return builder;
    }

    private byte[] signed(JcaX509v3CertificateBuilder builder) throws Exception {
        return builder.build(new JcaContentSignerBuilder("SHA256withRSA").build(authorityKeys.getPrivate())).getEncoded();
    }

    private static void write(Path file, String kind, byte[] content) throws IOException {
        StringWriter text = new StringWriter();
        text.append("-----BEGIN ").append(kind).append("-----\n");
        text.append(Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content));
        text.append("\n-----END ").append(kind).append("-----\n");
        Files.writeString(file, text.toString());
    }
}
