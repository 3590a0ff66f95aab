"""On real Spark: our files in whatever store the driver's Hadoop can write."""

from __future__ import annotations

import stat
import time

import pytest
from support.driver import Driver
from support.planted import HUNTER

from querypulse.alerting.alert import recording_id
from querypulse.listener.spark.storage import SparkFolder
from querypulse.recording.store import RecordingStore

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.thorough]

STORES = """
import java.io.*;
import java.net.URI;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.util.Progressable;
public class Renames extends RawLocalFileSystem {
    public URI getUri() { return URI.create("renames:///"); }
    private boolean isClosed = false;
    public void close() throws IOException {
        isClosed = true;
        super.close();
    }
    public boolean rename(Path from, Path to) throws IOException { return !exists(to) && super.rename(from, to); }
    public FSDataOutputStream create(Path path, boolean overwrite, int buffer, short replication,
            long block, Progressable progress) throws IOException {
        if (isClosed) throw new IOException("Filesystem closed");
        return super.create(path, overwrite, buffer, replication, block, progress);
    }
}
class Objects extends RawLocalFileSystem {
    public Objects() {}
    public URI getUri() { return URI.create("objects:///"); }
    public boolean hasPathCapability(Path path, String capability) {
        return capability.equals("fs.capability.outputstream.abortable");
    }
    public boolean rename(Path from, Path to) { throw new UnsupportedOperationException(); }
    public FSDataOutputStream create(Path path, boolean overwrite, int buffer, short replication,
            long block, Progressable progress) throws IOException {
        mkdirs(path.getParent());
        return new FSDataOutputStream(new Upload(path), null);
    }
    public static class Upload extends ByteArrayOutputStream implements Abortable {
        private final Path path;
        private boolean isAborted = false;
        public Upload(Path path) { this.path = path; }
        public void write(byte[] bytes, int from, int length) {
            super.write(bytes, from, length / 2);
            if (path.getName().equals("refused")) throw new IllegalStateException("password=hunter2hunter2");
            super.write(bytes, from + length / 2, length - length / 2);
        }
        public void close() throws IOException {
            if (isAborted) return;
            FileOutputStream file = new FileOutputStream(path.toUri().getPath());
            file.write(toByteArray());
            file.close();
        }
        public Abortable.AbortableResult abort() { isAborted = true; return null; }
    }
}
"""
"""Two that only Hadoop's oldest interface opens, as a stranger's connector may be.

One does not rename to a file that is there, and does not say why; in the other, as in S3A, a file
is there once its stream is closed, and replaces the one before.
"""


@pytest.fixture(scope="module")
def uris(spark, tmp_path_factory):
    """Make the URI of a folder in each kind of store."""
    jvm = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    mounted = tmp_path_factory.mktemp("mounted")
    conf.set("fs.viewfs.mounttable.querypulse.link./mounted", mounted.as_uri())
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = loader.loadClass("org.codehaus.janino.SimpleCompiler").newInstance()
    compiler.setParentClassLoader(loader)
    compiler.cook(STORES)
    before = conf.getClassLoader()
    conf.setClassLoader(compiler.getClassLoader())
    conf.set("fs.renames.impl", "Renames")
    conf.set("fs.objects.impl", "Objects")
    yield {
        "file": lambda path: path.as_uri(),
        "viewfs": lambda path: f"viewfs://querypulse/mounted/{path.name}",
        "renames": lambda path: f"renames://{path}",
        "objects": lambda path: f"objects://{path}",
    }
    conf.setClassLoader(before)


@pytest.fixture(params=["file", "viewfs", "renames", "objects"])
def folder(request, spark, uris, tmp_path):
    """A folder on a disk, in a mounted one, and in each of ``STORES``."""
    return SparkFolder(spark, f"{uris[request.param](tmp_path)}/a/b")


def test_file_is_written_replaced_listed_read_and_deleted(folder):
    assert folder.entries() == {}
    folder.make()
    folder.make()
    for content in (b"", bytes(range(256)) * 4000, b"\x00\xff\n"):
        folder.write("x.jsonl", content)
        assert folder.read("x.jsonl") == content
    entries = folder.entries()
    assert {name: entry.size for name, entry in entries.items()} == {"x.jsonl": 3}
    assert entries["x.jsonl"].changed_at > 1e9
    folder.delete("x.jsonl")
    folder.delete("x.jsonl")
    assert folder.entries() == {}
    with pytest.raises(FileNotFoundError):
        folder.read("x.jsonl")
    with pytest.raises(OSError, match="appended"):
        folder.append("x.jsonl", b"")


def test_recordings_are_kept_in_it(folder):
    store, name = RecordingStore(folder), recording_id({"app": "etl", "query": "bronze"}, 1.8e9)
    store.put(name, b"a\n", b"a\n", urgent=True)
    store.put(name, b"a\nb\n", b"b\n")
    store.finish(name)
    store.tidy(time.time())
    folder.write("notes.txt", b"")

    assert (store.problem, store.failures) == ("", 0)
    assert store.read(name) == b"a\nb\n"
    other = RecordingStore(folder)
    other.tidy(time.time())
    assert {key: entry.size for key, entry in other.index.items()} == {name: 4}


def test_only_the_owner_reads_it_where_the_store_has_owners(spark, tmp_path):
    folder = SparkFolder(spark, f"{tmp_path.as_uri()}/a")
    folder.make()
    folder.write("x", b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/x")]

    assert modes == [0o700, 0o600]


def test_file_whose_renaming_was_interrupted_is_read_as_it_would_be(spark, tmp_path):
    """Some stores delete the old file before they rename the new one."""
    folder = SparkFolder(spark, tmp_path.as_uri())
    (tmp_path / ".x.draft").write_bytes(b"new")
    assert folder.read("x") == b"new"
    assert folder.entries() == {}
    folder.write("x", b"newer")
    (tmp_path / ".x.draft").write_bytes(b"half")

    assert folder.read("x") == b"newer"


def test_file_system_that_the_job_has_closed_is_opened_again(spark, uris, tmp_path):
    folder = SparkFolder(spark, uris["renames"](tmp_path))
    folder.write("x", b"1")
    folder._opened._files.close()
    with pytest.raises(OSError, match="Filesystem closed"):
        folder.write("x", b"2")
    folder.write("x", b"3")

    assert folder.read("x") == b"3"


def test_object_that_was_not_uploaded_as_a_whole_replaces_nothing(spark, uris, tmp_path):
    folder = SparkFolder(spark, uris["objects"](tmp_path))
    (tmp_path / "refused").write_bytes(b"old")
    with pytest.raises(OSError) as refused:
        folder.write("refused", b"new and longer")

    assert folder.read("refused") == b"old"
    assert HUNTER not in str(refused.value)
    assert len(str(refused.value)) <= 200


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("nosuch://bucket/x", "No FileSystem for scheme"),
        ("file:///proc/x", "Mkdirs failed|No such file|cannot be created|x"),
        ("file:///dev/null/x", "Not a directory|ParentNotDirectory|not a directory"),
        ("file://[x/y", "URISyntaxException|Malformed"),
    ],
)
def test_store_that_refuses_is_an_error_of_the_system_in_one_line(spark, uri, reason):
    with pytest.raises(OSError, match=reason) as refused:
        SparkFolder(spark, uri).write("x", b"")

    assert "\n" not in str(refused.value)


def test_dead_jvm_is_an_error_and_is_not_called_again(tmp_path):
    script = """
    from querypulse.listener.spark.storage import SparkFolder
    folder = SparkFolder(spark, os.environ["URI"])
    folder.write("x", b"1")
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
    spark.sparkContext._gateway.proc.wait()
    for call in (lambda: folder.write("x", b"2"), folder.entries, lambda: folder.read("x")):
        try:
            call()
        except OSError as error:
            say(str(error))
    """
    with Driver(script, tmp_path, URI=(tmp_path / "store").as_uri()) as driver:
        driver.wait_for_line("the driver's JVM has ended")

        driver.wait()
    assert driver.lines[1:] == ["the driver's JVM has ended"] * 2
