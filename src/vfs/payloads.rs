//! Bytes that are made once and read in pieces: decoded payloads, and files over many samples. Each is
//! made by one thread, while the others wait for it. What lies in memory stays below one budget in
//! bytes, what lies in temporary files below another; what was not read for longest makes room.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use super::Node;
use crate::storage::{Buffer, ScratchFile};

/// What nobody read for this long is given back.
pub(super) const IDLE: Duration = Duration::from_secs(30);
/// The same for files over many samples, which take long to make.
const FILE_IDLE: Duration = Duration::from_secs(600);
/// What an entry takes beside its bytes, in bytes of memory: its places in the tables here and in the
/// list of what was prefetched, and what the allocator adds.
pub(super) const ENTRY: u64 = 320;

/// What is held.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Key {
    /// The decoded payload of a sample, by cache slot and number.
    Sample(u64, u64),
    /// A file that is made of many samples.
    File(Node),
}

impl Key {
    fn idle(self) -> Duration {
        match self {
            Self::Sample(..) => IDLE,
            Self::File(_) => FILE_IDLE,
        }
    }
}

/// Where bytes are held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Memory,
    Disk,
}

/// The payloads of one mount.
#[derive(Debug)]
pub(super) struct Payloads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    memory: u64,
    disk: u64,
    state: Mutex<State>,
    /// Signalled when a payload is ready, making it failed, or bytes were given back.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    making: HashSet<Key>,
    memory: Pool,
    disk: Pool,
}

/// What is ready in one place, the one that was read last first.
#[derive(Debug)]
struct Pool {
    /// Bytes reserved, in use or not.
    held: u64,
    ready: LruCache<Key, Ready>,
}

#[derive(Debug)]
struct Ready {
    payload: Arc<Payload>,
    used: Instant,
}

/// Bytes that are ready; they count against their budget until the last reader lets go.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: Bytes,
    _reserved: Reservation,
}

#[derive(Debug)]
enum Bytes {
    Memory(Buffer),
    Disk(ScratchFile),
}

impl Payload {
    pub(super) fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Memory(bytes) => bytes.len() as u64,
            Bytes::Disk(file) => file.len(),
        }
    }

    /// Puts the bytes from `offset` on into `out` and says how many there are: `out.len()`, or what
    /// there is from there.
    ///
    /// # Errors
    /// What the system says of a temporary file.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        match &self.bytes {
            Bytes::Memory(bytes) => Ok(super::read::copy_from(bytes, offset, out)),
            Bytes::Disk(file) => file.read_at(offset, out),
        }
    }
}

/// Bytes taken from a budget, given back on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    shared: Arc<Shared>,
    place: Place,
    len: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let pool = state.pool(self.place);
        pool.held = pool.held.saturating_sub(self.len);
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// Why there is no payload.
#[derive(Debug)]
pub(super) enum PayloadError<E> {
    /// The budget, or the memory of the machine, is smaller than what it takes.
    TooLarge,
    /// Making it failed.
    Failed(E),
}

/// What one payload takes while it is decoded, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) decoded: u64,
    pub(super) stored: u64,
}

impl Sizes {
    /// Memory that decoding takes.
    pub(super) fn needed(self) -> u64 {
        self.decoded
            .saturating_add(self.stored)
            .saturating_add(ENTRY)
    }
}

/// A thread's right and duty to make one payload.
pub(super) struct Turn<'a> {
    payloads: &'a Payloads,
    key: Key,
}

/// What [`Payloads::find`] found.
pub(super) enum Found<'a> {
    Payload(Arc<Payload>),
    Turn(Turn<'a>),
}

impl Payloads {
    /// At most `memory` bytes of memory and `disk` bytes of temporary files.
    pub(super) fn new(memory: u64, disk: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                memory,
                disk,
                state: Mutex::new(State {
                    making: HashSet::new(),
                    memory: Pool::new(),
                    disk: Pool::new(),
                }),
                changed: Condvar::new(),
            }),
        }
    }

    pub(super) fn budget(&self, place: Place) -> u64 {
        self.shared.budget(place)
    }

    /// Bytes held now.
    pub(super) fn held(&self, place: Place) -> u64 {
        self.shared.lock().pool(place).held
    }

    /// Whether it is here.
    pub(super) fn has(&self, key: Key) -> bool {
        let state = self.shared.lock();
        state.memory.ready.contains(&key) || state.disk.ready.contains(&key)
    }

    /// The payload, once somebody has made it; or this thread's turn to do so.
    pub(super) fn find(&self, key: Key) -> Found<'_> {
        let mut state = self.shared.lock();
        loop {
            if let Some(payload) = state.get(key) {
                return Found::Payload(payload);
            }
            if state.making.insert(key) {
                return Found::Turn(Turn {
                    payloads: self,
                    key,
                });
            }
            state = self.shared.wait(state);
        }
    }

    /// Gives back a payload that nobody will ask for again.
    pub(super) fn release(&self, key: Key) {
        let mut state = self.shared.lock();
        let released = (state.memory.ready.pop(&key), state.disk.ready.pop(&key));
        // Its reservation takes the lock.
        drop(state);
        drop(released);
    }

    /// Waits until `len` more bytes may be held in memory. `None` when that is more than the whole
    /// budget.
    pub(super) fn reserve(&self, len: u64) -> Option<Reservation> {
        self.shared.reserve(Place::Memory, len)
    }

    /// Drops what nobody has read for a while, and says whether there was any.
    pub(super) fn drop_idle(&self, now: Instant) -> bool {
        let mut state = self.shared.lock();
        let mut idle = state.memory.take_idle(now);
        idle.extend(state.disk.take_idle(now));
        // Their reservations take the lock.
        drop(state);
        !idle.is_empty()
    }
}

impl Turn<'_> {
    /// Decodes the payload into memory with `decode`, which fills a buffer of the decoded size, and
    /// shows it to everybody. The stored bytes, which are gone when `decode` returns, count as well.
    pub(super) fn decode<E>(
        &self,
        sizes: Sizes,
        decode: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Arc<Payload>, PayloadError<E>> {
        let shared = &self.payloads.shared;
        let held = sizes.decoded.saturating_add(ENTRY);
        let taken = shared.reserve(Place::Memory, sizes.needed());
        let mut taken = taken.ok_or(PayloadError::TooLarge)?;
        let bytes = Buffer::zeroed(sizes.decoded);
        let mut bytes = bytes.map_err(|_| PayloadError::TooLarge)?;
        decode(&mut bytes).map_err(PayloadError::Failed)?;
        let reserved = taken.split(held);
        drop(taken);
        Ok(self.ready(Place::Memory, Bytes::Memory(bytes), reserved))
    }

    /// Has `write` write `len` bytes into a temporary file, and shows it to everybody.
    pub(super) fn write<E>(
        &self,
        len: u64,
        write: impl FnOnce() -> Result<ScratchFile, E>,
    ) -> Result<Arc<Payload>, PayloadError<E>> {
        let reserved = self.payloads.shared.reserve(Place::Disk, len);
        let reserved = reserved.ok_or(PayloadError::TooLarge)?;
        let file = write().map_err(PayloadError::Failed)?;
        Ok(self.ready(Place::Disk, Bytes::Disk(file), reserved))
    }

    fn ready(&self, place: Place, bytes: Bytes, reserved: Reservation) -> Arc<Payload> {
        let payload = Arc::new(Payload {
            bytes,
            _reserved: reserved,
        });
        let ready = Ready {
            payload: Arc::clone(&payload),
            used: Instant::now(),
        };
        let mut state = self.payloads.shared.lock();
        let replaced = state.pool(place).ready.put(self.key, ready);
        drop(state);
        drop(replaced);
        payload
    }
}

impl Drop for Turn<'_> {
    /// Whoever waits takes what was made, or after a failure (or a panic) the turn.
    fn drop(&mut self) {
        let shared = &self.payloads.shared;
        shared.lock().making.remove(&self.key);
        shared.changed.notify_all();
    }
}

impl State {
    fn pool(&mut self, place: Place) -> &mut Pool {
        match place {
            Place::Memory => &mut self.memory,
            Place::Disk => &mut self.disk,
        }
    }

    fn get(&mut self, key: Key) -> Option<Arc<Payload>> {
        let ready = match self.memory.ready.get_mut(&key) {
            Some(ready) => ready,
            None => self.disk.ready.get_mut(&key)?,
        };
        ready.used = Instant::now();
        Some(Arc::clone(&ready.payload))
    }
}

impl Pool {
    fn new() -> Self {
        Self {
            held: 0,
            ready: LruCache::unbounded(),
        }
    }

    /// Takes out what was not read for long. Entries come in the order in which they were read, so
    /// those that were read lately are not looked at.
    fn take_idle(&mut self, now: Instant) -> Vec<Ready> {
        let unused = |ready: &Ready| now.saturating_duration_since(ready.used);
        let old = self.ready.iter().rev();
        let old = old.take_while(|(_, ready)| unused(ready) >= IDLE);
        let idle: Vec<Key> = old
            .filter(|(key, ready)| unused(ready) >= key.idle())
            .map(|(key, _)| *key)
            .collect();
        let idle = idle.iter().filter_map(|key| self.ready.pop(key)).collect();
        if self.ready.is_empty() {
            // The table of a burst.
            self.ready = LruCache::unbounded();
        }
        idle
    }
}

impl Reservation {
    /// Takes `len` of its bytes out of it.
    fn split(&mut self, len: u64) -> Self {
        let len = len.min(self.len);
        self.len -= len;
        Self {
            shared: Arc::clone(&self.shared),
            place: self.place,
            len,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn budget(&self, place: Place) -> u64 {
        match place {
            Place::Memory => self.memory,
            Place::Disk => self.disk,
        }
    }

    /// Takes bytes from a budget. What was not read for longest makes room; if the rest is in use,
    /// waits. A thread that waits here holds nothing, so those that do will finish.
    fn reserve(self: &Arc<Self>, place: Place, needed: u64) -> Option<Reservation> {
        let budget = self.budget(place);
        if needed > budget {
            return None;
        }
        let mut state = self.lock();
        while budget - state.pool(place).held.min(budget) < needed {
            match state.pool(place).ready.pop_lru() {
                Some(evicted) => {
                    drop(state);
                    drop(evicted);
                    state = self.lock();
                }
                None => state = self.wait(state),
            }
        }
        state.pool(place).held += needed;
        drop(state);
        Some(Reservation {
            shared: Arc::clone(self),
            place,
            len: needed,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn get(payloads: &Payloads, sample: u64, len: u64, decoded: &AtomicU64) -> Arc<Payload> {
        match payloads.find(Key::Sample(0, sample)) {
            Found::Payload(payload) => payload,
            Found::Turn(turn) => {
                let sizes = Sizes {
                    decoded: len,
                    stored: 1,
                };
                let result = turn.decode(sizes, |out| {
                    decoded.fetch_add(1, Ordering::Relaxed);
                    out.fill(u8::try_from(sample % 251).unwrap());
                    Ok::<_, ()>(())
                });
                result.unwrap()
            }
        }
    }

    fn byte(payload: &Payload, at: u64) -> u8 {
        let mut byte = [0];
        assert_eq!(payload.read_at(at, &mut byte).unwrap(), 1);
        byte[0]
    }

    fn turn(payloads: &Payloads, key: Key) -> Turn<'_> {
        match payloads.find(key) {
            Found::Turn(turn) => turn,
            Found::Payload(_) => panic!("nothing was made yet"),
        }
    }

    #[test]
    fn one_thread_decodes_for_all() {
        let (payloads, decoded) = (Payloads::new(1000 + ENTRY, 0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(byte(&get(&payloads, 7, 900, &decoded), 899), 7));
            }
        });
        assert_eq!(decoded.load(Ordering::Relaxed), 1);
        assert_eq!(payloads.held(Place::Memory), 900 + ENTRY);
        assert!(payloads.drop_idle(Instant::now() + IDLE));
        assert!(!payloads.drop_idle(Instant::now() + IDLE));
        assert_eq!(payloads.held(Place::Memory), 0);
    }

    #[test]
    fn many_readers_of_many_payloads_stay_inside_the_budget() {
        let budget = 2 * (100 + ENTRY) + 50;
        let (payloads, decoded) = (Payloads::new(budget, 0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (payloads, decoded) = (&payloads, &decoded);
                scope.spawn(move || {
                    for n in 0..200 {
                        let sample = (n * 7 + thread) % 23;
                        let payload = get(payloads, sample, 100, decoded);
                        assert_eq!(u64::from(byte(&payload, 99)), sample);
                        assert!(payloads.held(Place::Memory) <= budget);
                    }
                });
            }
        });
        assert!(payloads.held(Place::Memory) <= budget);
    }

    #[test]
    fn what_was_not_read_for_longest_makes_room() {
        let (payloads, decoded) = (Payloads::new(3 * (10 + ENTRY), 0), AtomicU64::new(0));
        for sample in [0, 1, 2, 0, 3] {
            get(&payloads, sample, 9, &decoded);
        }
        let here = |sample| payloads.has(Key::Sample(0, sample));
        assert_eq!([0, 1, 2, 3].map(here), [true, false, true, true]);
    }

    #[test]
    fn payloads_without_bytes_count_as_entries() {
        let (payloads, decoded) = (Payloads::new(10 * ENTRY + 5, 0), AtomicU64::new(0));
        for sample in 0..1000 {
            get(&payloads, sample, 0, &decoded);
        }
        let here = (0..1000).filter(|n| payloads.has(Key::Sample(0, *n)));
        assert_eq!(here.count(), 10);
    }

    #[test]
    fn what_never_fits_is_refused_and_failures_pass_the_turn_on() {
        let payloads = Payloads::new(10 + ENTRY, 0);
        let sizes = |decoded| Sizes { decoded, stored: 1 };
        let key = Key::Sample(0, 0);
        let refused = turn(&payloads, key).decode(sizes(10), |_| Ok::<_, ()>(()));
        assert!(matches!(refused, Err(PayloadError::TooLarge)));
        let failed = turn(&payloads, key).decode(sizes(5), |_| Err("bad"));
        assert!(matches!(failed, Err(PayloadError::Failed("bad"))));
        drop(turn(&payloads, key));
        assert_eq!(payloads.held(Place::Memory), 0);
    }

    #[test]
    fn temporary_files_have_a_budget_of_their_own() {
        let payloads = Payloads::new(0, 10);
        let write = |key, len| {
            turn(&payloads, key).write(len, || {
                let mut file = ScratchFile::create().map_err(|_| ())?;
                file.write_all(&vec![5; usize::try_from(len).unwrap()])
                    .map_err(|_| ())?;
                Ok::<_, ()>(file)
            })
        };
        let (sample, file) = (Key::Sample(0, 1), Key::File(Node::JoinedTable));
        assert!(matches!(write(sample, 11), Err(PayloadError::TooLarge)));
        assert_eq!(byte(&write(sample, 6).unwrap(), 5), 5);
        assert_eq!(write(file, 4).unwrap().len(), 4);
        assert_eq!(payloads.held(Place::Disk), 10);
        assert_eq!(payloads.held(Place::Memory), 0);
        // A file over many samples is kept for longer.
        assert!(payloads.drop_idle(Instant::now() + IDLE));
        assert!(!payloads.has(sample) && payloads.has(file));
        assert!(payloads.drop_idle(Instant::now() + FILE_IDLE));
        assert_eq!(payloads.held(Place::Disk), 0);
        write(file, 9).unwrap();
        write(sample, 2).unwrap();
        assert!(!payloads.has(file), "it made room");
    }
}
