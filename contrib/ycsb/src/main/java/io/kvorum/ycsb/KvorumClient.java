package io.kvorum.ycsb;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB's binding for kvorum. A record is one value: its fields, each as name and bytes with their lengths. Properties:
 * kvorum.url (nodes, joined by commas; threads take them in turn), kvorum.ack, kvorum.from, kvorum.timeout (ms).
 *
 * <p>An update of some fields reads the record and writes it whole, not atomically. Scans are not implemented.
 * Run workload E with {@code kvorum bench} instead.
 */
public class KvorumClient extends DB {
  private static final java.util.concurrent.atomic.AtomicInteger THREADS = new java.util.concurrent.atomic.AtomicInteger();

  private HttpClient client;
  private String url;
  private String acks = "";
  private Duration timeout;

  @Override
  public void init() throws DBException {
    String[] urls = getProperties().getProperty("kvorum.url", "http://127.0.0.1:8080").split(",");
    url = urls[THREADS.getAndIncrement() % urls.length];
    for (String name : new String[] {"ack", "from"}) {
      String value = getProperties().getProperty("kvorum." + name);
      acks += value == null ? "" : "&" + name + "=" + value;
    }
    timeout = Duration.ofMillis(Long.parseLong(getProperties().getProperty("kvorum.timeout", "10000")));
    client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(timeout).build();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    return answered(request(table, key).GET(), response -> {
      if (response.statusCode() == 404) {
        return Status.NOT_FOUND;
      }
      if (response.statusCode() != 200) {
        return Status.ERROR;
      }
      decode(response.body()).forEach((name, value) -> {
        if (fields == null || fields.contains(name)) {
          result.put(name, new ByteArrayByteIterator(value));
        }
      });
      return Status.OK;
    });
  }

  @Override
  public Status scan(String table, String start, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    Map<String, ByteIterator> record = new HashMap<>();
    Status status = read(table, key, null, record);
    if (!status.isOk()) {
      return status;
    }
    record.putAll(values);
    return insert(table, key, record);
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    byte[] body;
    try {
      body = encode(values);
    } catch (IOException error) {
      return Status.ERROR;
    }
    HttpRequest.Builder put = request(table, key).PUT(HttpRequest.BodyPublishers.ofByteArray(body));
    return answered(put, response -> response.statusCode() == 201 ? Status.OK : Status.ERROR);
  }

  @Override
  public Status delete(String table, String key) {
    return answered(request(table, key).DELETE(), response -> response.statusCode() == 202 ? Status.OK : Status.ERROR);
  }

  private HttpRequest.Builder request(String table, String key) {
    String id = URLEncoder.encode(table + ":" + key, StandardCharsets.UTF_8);
    return HttpRequest.newBuilder(URI.create(url + "/v0/entity?id=" + id + acks)).timeout(timeout);
  }

  private interface Judge {
    Status judge(HttpResponse<byte[]> response) throws IOException;
  }

  private Status answered(HttpRequest.Builder request, Judge judge) {
    try {
      return judge.judge(client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray()));
    } catch (IOException error) {
      return Status.ERROR;
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      return Status.ERROR;
    }
  }

  private static byte[] encode(Map<String, ByteIterator> values) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    for (Map.Entry<String, ByteIterator> field : values.entrySet()) {
      byte[] value = field.getValue().toArray();
      out.writeUTF(field.getKey());
      out.writeInt(value.length);
      out.write(value);
    }
    return bytes.toByteArray();
  }

  private static Map<String, byte[]> decode(byte[] bytes) throws IOException {
    Map<String, byte[]> values = new HashMap<>();
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(bytes));
    while (in.available() > 0) {
      String name = in.readUTF();
      int length = in.readInt();
      if (length < 0 || length > in.available()) {
        throw new IOException("not a record of this binding");
      }
      values.put(name, in.readNBytes(length));
    }
    return values;
  }
}
