import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** The local disk; creating a file blocks while {@code throttled} is set. */
public class ThrottledFileSystem extends RawLocalFileSystem {
  public URI getUri() {
    return URI.create("throttled:///");
  }

  public FSDataOutputStream create(Path path, boolean overwrite, int buffer, short replication,
      long block, Progressable progress) throws IOException {
    await();
    return super.create(path, overwrite, buffer, replication, block, progress);
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite,
      int buffer, short replication, long block, Progressable progress) throws IOException {
    await();
    return super.create(path, permission, overwrite, buffer, replication, block, progress);
  }

  private void await() throws IOException {
    try {
      while (System.getProperty("throttled") != null) {
        Thread.sleep(50);
      }
    } catch (InterruptedException error) {
      throw new IOException(error.toString());
    }
  }
}
