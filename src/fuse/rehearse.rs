//! What serving will take, tried before the mount is there: a thread that cannot start then, or a buffer
//! that cannot be had, would leave a mount that answers nobody.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use crate::storage::Buffer;

/// What fuser sets aside for each event thread: the largest write, and its header. It ends the process
/// when it cannot.
const EVENT_BUFFER: u64 = (16 << 20) + 4096;
/// Threads beside those of the events: the one that waits for them, the first look, and workers.
const OTHERS: usize = 6;
/// Memory for all else that serving takes.
const BESIDE: u64 = 32 << 20;

/// Starts as many threads as serving will with `events` event threads, each with its buffer, all at
/// once, and ends them again. What the system refuses because of a limit it refuses now.
pub(super) fn rehearse(events: usize) -> io::Result<()> {
    let (had, hear) = mpsc::channel();
    let mut running = Vec::new();
    let mut started = Ok(());
    for n in 0..events.saturating_add(OTHERS) {
        let (had, (go, wait)) = (had.clone(), mpsc::channel());
        let len = if n < events { EVENT_BUFFER } else { 0 };
        let worker = thread::Builder::new().name("rehearsal".to_owned());
        match worker.spawn(move || hold(len, &had, &wait)) {
            Ok(thread) => running.push((go, thread)),
            Err(error) => {
                started = Err(error);
                break;
            }
        }
    }
    drop(had);
    // All hold what they have until the last one has it.
    let held: io::Result<()> = hear.iter().take(running.len()).collect();
    let beside = Buffer::zeroed(BESIDE);
    for (go, thread) in running {
        drop(go);
        // It does nothing that could panic.
        let _ = thread.join();
    }
    started.and(held).and(beside.map(drop))
}

fn hold(len: u64, had: &Sender<io::Result<()>>, wait: &Receiver<()>) {
    let buffer = Buffer::zeroed(len);
    let _ = had.send(buffer.as_ref().map(|_| ()).map_err(|e| e.kind().into()));
    // Ends when the other side is dropped.
    let _ = wait.recv();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_room_for_is_had_and_given_back() {
        for events in [1, 5, 17] {
            rehearse(events).unwrap();
        }
    }
}
