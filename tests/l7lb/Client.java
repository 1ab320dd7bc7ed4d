import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;

/** {@code java Client.java BASE}: requests of java.net.http.HttpClient; prints a line for each kind with its right answers. */
public class Client {
    private static final int REQUESTS = 200;
    private static final byte[] UPLOAD = new byte[1_000_000];

    public static void main(String[] arguments) throws Exception {
        String base = arguments[0];
        new Random(1).nextBytes(UPLOAD);
        for (HttpClient.Version version : HttpClient.Version.values()) {
            // With HTTP_2, the first request of a connection offers an upgrade, which these servers do not take.
            HttpClient client = HttpClient.newBuilder().version(version).connectTimeout(Duration.ofSeconds(20)).build();
            System.out.println(version + " get " + concurrent(client, base));
            System.out.println(version + " length " + uploaded(client, base, false, BodyPublishers.ofByteArray(UPLOAD)));
            System.out.println(version + " expect " + uploaded(client, base, true, BodyPublishers.ofByteArray(UPLOAD)));
            System.out.println(version + " chunked " + uploaded(client, base, false,
                BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(UPLOAD))));
        }
    }

    private static HttpRequest.Builder to(String address) {
        return HttpRequest.newBuilder(URI.create(address)).timeout(Duration.ofSeconds(30));
    }

    private static long concurrent(HttpClient client, String base) {
        List<CompletableFuture<HttpResponse<byte[]>>> answers = IntStream.range(0, REQUESTS)
            .mapToObj(size -> to(base + "/bytes?seed=1&size=" + size * 100).build())
            .map(request -> client.sendAsync(request, BodyHandlers.ofByteArray()))
            .toList();
        return IntStream.range(0, REQUESTS)
            .filter(size -> answers.get(size).join().statusCode() == 200)
            .filter(size -> answers.get(size).join().body().length == size * 100)
            .count();
    }

    private static boolean uploaded(HttpClient client, String base, boolean expects, HttpRequest.BodyPublisher body)
            throws Exception {
        HttpRequest request = to(base + "/sha256").expectContinue(expects).POST(body).build();
        String digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(UPLOAD));
        return client.send(request, BodyHandlers.ofString()).body().contains(digest);
    }
}
