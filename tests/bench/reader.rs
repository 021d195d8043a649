//! Reads and lists files in a given way and says how long it took, as one line of JSON.
//!
//! usage: bench-reader read|list|stat|find|cat ... (see --help)
//!
//! Readers are processes by default, since threads of one process share their table of descriptors. All
//! wait until the last one is ready.

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;

use clap::{Args, Parser, Subcommand, ValueEnum};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::json;

/// Measures how long reading files takes
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Open, fstat, read whole and close each file once
    Read(ReadArgs),
    /// Names of a folder (getdents alone)
    List(ListArgs),
    /// Names of a folder, each with a stat as it comes (as scandir and stat)
    Stat(ListArgs),
    /// All names of a folder first, then a stat of each (as find -size)
    Find(ListArgs),
    /// One large file from front to end
    Cat(CatArgs),
}

#[derive(Args, Clone)]
struct ReadArgs {
    /// Folder of the files
    dir: PathBuf,
    /// Files are named 0 to COUNT - 1
    #[arg(long, default_value_t = 0)]
    count: u64,
    /// Digits of a name, filled up with zeros
    #[arg(long, default_value_t = 0)]
    width: usize,
    /// Read the files that this file names, one a line, instead
    #[arg(long)]
    list: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Order::Sequential)]
    order: Order,
    /// For the shuffled order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Readers, each with every Nth file
    #[arg(long, default_value_t = 1)]
    readers: usize,
    /// Readers are threads of one process
    #[arg(long)]
    threads: bool,
    /// Run all readers on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Bytes of one read call [default: the whole file]
    #[arg(long)]
    buffer: Option<usize>,
    /// For our own use: be reader number N, controlled through stdin and stdout
    #[arg(long, hide = true)]
    worker: Option<usize>,
}

#[derive(Args)]
struct ListArgs {
    dir: PathBuf,
    #[arg(long)]
    cpu: Option<usize>,
}

#[derive(Args)]
struct CatArgs {
    file: PathBuf,
    /// Bytes of one read call
    #[arg(long, default_value_t = 128 << 10)]
    buffer: usize,
    #[arg(long)]
    cpu: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    Sequential,
    Shuffled,
}

/// What one reader did.
#[derive(Default)]
struct Done {
    nanos: Vec<u64>,
    bytes: u64,
}

fn main() -> io::Result<()> {
    let line = match Cli::parse().mode {
        Mode::Read(args) => match args.worker {
            Some(number) => return work_for_parent(&args, number),
            None => read(&args)?,
        },
        Mode::List(args) => listed(&args, |dir| Ok((names(dir)?.len() as u64, 0)))?,
        Mode::Stat(args) => listed(&args, stat_as_listed)?,
        Mode::Find(args) => listed(&args, stat_afterwards)?,
        Mode::Cat(args) => cat(&args)?,
    };
    println!("{line}");
    Ok(())
}

fn read(args: &ReadArgs) -> io::Result<serde_json::Value> {
    let (done, seconds) = match args.threads {
        true => read_by_threads(args)?,
        false => read_by_processes(args)?,
    };
    let bytes: u64 = done.iter().map(|done| done.bytes).sum();
    let mut nanos: Vec<u64> = done.into_iter().flat_map(|done| done.nanos).collect();
    nanos.sort_unstable();
    let files = nanos.len() as u64;
    let at = |part: usize| nanos.get(nanos.len() * part / 100).copied().unwrap_or(0);
    Ok(json!({
        "files": files,
        "bytes": bytes,
        "seconds": seconds,
        "ns_per_file": {
            // Of all readers together.
            "mean": seconds * 1e9 / files.max(1) as f64,
            // Of one reader, file by file.
            "best": at(0),
            "p50": at(50),
            "p99": at(99),
        },
    }))
}

fn read_by_threads(args: &ReadArgs) -> io::Result<(Vec<Done>, f64)> {
    let ready = Barrier::new(args.readers + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.readers)
            .map(|number| {
                let ready = &ready;
                scope.spawn(move || {
                    let files = part_of(args, number);
                    let pinned = pin(args.cpu);
                    ready.wait();
                    pinned?;
                    read_files(args, &files?)
                })
            })
            .collect();
        ready.wait();
        let start = Instant::now();
        let done = workers.into_iter().map(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => Err(io::Error::other("a reader panicked")),
        });
        let done = done.collect::<io::Result<Vec<_>>>()?;
        Ok((done, start.elapsed().as_secs_f64()))
    })
}

fn read_by_processes(args: &ReadArgs) -> io::Result<(Vec<Done>, f64)> {
    let mut children = (0..args.readers)
        .map(start_worker)
        .collect::<io::Result<Vec<_>>>()?;
    for child in &mut children {
        let mut ready = [0];
        output(child)?.read_exact(&mut ready)?;
    }
    let start = Instant::now();
    for child in &mut children {
        child
            .stdin
            .take()
            .map_or(Ok(()), |mut to| to.write_all(b"\n"))?;
    }
    // One byte from each when it has read its last file; the numbers come after.
    for child in &mut children {
        let mut finished = [0];
        output(child)?.read_exact(&mut finished)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let done = children.into_iter().map(collect_from);
    Ok((done.collect::<io::Result<_>>()?, seconds))
}

/// The same command line, as one reader.
fn start_worker(number: usize) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .args(["--worker", &number.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
}

fn output(child: &mut Child) -> io::Result<&mut std::process::ChildStdout> {
    child
        .stdout
        .as_mut()
        .ok_or_else(|| io::Error::other("a reader without output"))
}

fn collect_from(mut child: Child) -> io::Result<Done> {
    let mut bytes = Vec::new();
    output(&mut child)?.read_to_end(&mut bytes)?;
    if !child.wait()?.success() {
        return Err(io::Error::other("a reader failed"));
    }
    let mut numbers = bytes
        .as_chunks()
        .0
        .iter()
        .map(|chunk| u64::from_le_bytes(*chunk));
    Ok(Done {
        bytes: numbers.next().unwrap_or(0),
        nanos: numbers.collect(),
    })
}

fn work_for_parent(args: &ReadArgs, number: usize) -> io::Result<()> {
    let files = part_of(args, number)?;
    pin(args.cpu)?;
    let mut out = io::stdout().lock();
    out.write_all(b"r")?;
    out.flush()?;
    io::stdin().lock().read_line(&mut String::new())?;
    let done = read_files(args, &files)?;
    out.write_all(b"d")?;
    out.flush()?;
    out.write_all(&done.bytes.to_le_bytes())?;
    for nanos in done.nanos {
        out.write_all(&nanos.to_le_bytes())?;
    }
    out.flush()
}

/// The files of one reader, in its order.
fn part_of(args: &ReadArgs, number: usize) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = match &args.list {
        Some(list) => {
            let text = fs::read_to_string(list)?;
            text.lines().map(|name| args.dir.join(name)).collect()
        }
        None => (0..args.count)
            .map(|n| args.dir.join(format!("{n:0width$}", width = args.width)))
            .collect(),
    };
    if let Order::Shuffled = args.order {
        shuffle(&mut files, args.seed);
    }
    let mine = files.into_iter().skip(number).step_by(args.readers.max(1));
    Ok(mine.collect())
}

fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for n in (1..items.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = state % (n as u64 + 1);
        items.swap(n, usize::try_from(other).unwrap_or(0));
    }
}

fn read_files(args: &ReadArgs, files: &[PathBuf]) -> io::Result<Done> {
    let mut done = Done {
        nanos: Vec::with_capacity(files.len()),
        bytes: 0,
    };
    let mut buffer = Vec::new();
    for path in files {
        let start = Instant::now();
        done.bytes += read_one(path, args.buffer, &mut buffer)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        done.nanos
            .push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(done)
}

fn read_one(path: &Path, piece: Option<usize>, buffer: &mut Vec<u8>) -> io::Result<u64> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let piece = piece.unwrap_or(usize::try_from(len).unwrap_or(usize::MAX));
    if buffer.len() < piece {
        buffer.resize(piece, 0);
    }
    let mut at = 0;
    while at < len {
        let n = file.read_at(&mut buffer[..piece], at)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += n as u64;
    }
    Ok(len)
}

fn listed(
    args: &ListArgs,
    list: impl Fn(&Path) -> io::Result<(u64, u64)>,
) -> io::Result<serde_json::Value> {
    pin(args.cpu)?;
    let start = Instant::now();
    let (entries, bytes) = list(&args.dir)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(json!({ "entries": entries, "bytes": bytes, "seconds": seconds }))
}

fn names(dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

/// Number of entries and sum of their lengths.
fn stat_as_listed(dir: &Path) -> io::Result<(u64, u64)> {
    let mut sum = (0, 0);
    for entry in fs::read_dir(dir)? {
        let meta = entry?.metadata()?;
        sum = (sum.0 + 1, sum.1 + meta.size());
    }
    Ok(sum)
}

fn stat_afterwards(dir: &Path) -> io::Result<(u64, u64)> {
    let mut sum = (0, 0);
    for name in names(dir)? {
        let meta = fs::symlink_metadata(dir.join(name))?;
        sum = (sum.0 + 1, sum.1 + meta.size());
    }
    Ok(sum)
}

fn cat(args: &CatArgs) -> io::Result<serde_json::Value> {
    pin(args.cpu)?;
    let mut buffer = vec![0; args.buffer];
    let start = Instant::now();
    let mut file = File::open(&args.file)?;
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(json!({ "bytes": bytes, "seconds": seconds, "gb_per_second": bytes as f64 / seconds / 1e9 }))
}

/// Keeps this thread on one CPU.
fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
