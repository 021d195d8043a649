//! Decoded payloads that are being read in pieces: each is decoded once, by one thread, while the
//! others wait for it; all that are held together stay below a budget in bytes.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A payload that nobody read for this long is given back.
pub(super) const IDLE: Duration = Duration::from_secs(30);

/// Cache slot and sample.
pub(super) type Key = (u64, u64);

/// The payloads of one mount.
#[derive(Debug)]
pub(super) struct Payloads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    budget: u64,
    state: Mutex<State>,
    /// Signalled when a payload is ready, a decoding failed, or bytes were given back.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes reserved, in use or not.
    held: u64,
    entries: HashMap<Key, Entry>,
}

#[derive(Debug)]
enum Entry {
    Decoding,
    Ready {
        payload: Arc<Payload>,
        used: Instant,
    },
}

/// A decoded payload; its bytes count against the budget until the last reader lets go.
#[derive(Debug)]
pub(super) struct Payload {
    bytes: Vec<u8>,
    _reserved: Reservation,
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes taken from the budget, given back on drop.
#[derive(Debug)]
pub(super) struct Reservation {
    shared: Arc<Shared>,
    len: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.held = state.held.saturating_sub(self.len);
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// Why there is no payload.
#[derive(Debug)]
pub(super) enum PayloadError<E> {
    /// Decoding it takes more than the whole budget, in bytes.
    TooLarge { needed: u64, budget: u64 },
    /// Decoding failed.
    Decode(E),
}

/// What one payload takes while it is decoded, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) decoded: u64,
    pub(super) stored: u64,
}

/// A thread's right and duty to decode one payload.
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
    /// At most `budget` bytes.
    pub(super) fn new(budget: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                budget,
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    pub(super) fn budget(&self) -> u64 {
        self.shared.budget
    }

    /// Bytes held now.
    pub(super) fn held(&self) -> u64 {
        self.shared.lock().held
    }

    /// Whether the payload is here, decoded.
    pub(super) fn has(&self, key: Key) -> bool {
        matches!(
            self.shared.lock().entries.get(&key),
            Some(Entry::Ready { .. })
        )
    }

    /// The payload, once somebody has decoded it; or this thread's turn to do so.
    pub(super) fn find(&self, key: Key) -> Found<'_> {
        let mut state = self.shared.lock();
        loop {
            match state.entries.get_mut(&key) {
                Some(Entry::Ready { payload, used }) => {
                    *used = Instant::now();
                    return Found::Payload(Arc::clone(payload));
                }
                Some(Entry::Decoding) => state = self.shared.wait(state),
                None => {
                    state.entries.insert(key, Entry::Decoding);
                    return Found::Turn(Turn {
                        payloads: self,
                        key,
                    });
                }
            }
        }
    }

    /// Gives back a payload that nobody will ask for again.
    pub(super) fn release(&self, key: Key) {
        let mut state = self.shared.lock();
        let ready = matches!(state.entries.get(&key), Some(Entry::Ready { .. }));
        let released = ready.then(|| state.entries.remove(&key));
        // Its reservation takes the lock.
        drop(state);
        drop(released);
    }

    /// Waits until `len` more bytes may be held. `None` when that is more than the whole budget.
    pub(super) fn reserve(&self, len: u64) -> Option<Reservation> {
        let sizes = Sizes {
            decoded: len,
            stored: 0,
        };
        self.shared.reserve(sizes).map(|(reserved, _)| reserved)
    }

    /// Drops payloads that nobody has read for a while, and says whether there were any.
    pub(super) fn drop_idle(&self, now: Instant) -> bool {
        let mut idle = Vec::new();
        self.shared.lock().entries.retain(|_, entry| match entry {
            Entry::Ready { payload, used } if now.saturating_duration_since(*used) >= IDLE => {
                idle.push(Arc::clone(payload));
                false
            }
            _ => true,
        });
        // Their reservations take the lock, so they are dropped after it was released.
        !idle.is_empty()
    }
}

impl Turn<'_> {
    /// Decodes the payload with `decode`, which fills a buffer of the decoded size, and shows it to
    /// everybody. The reservation that comes along stands for the stored bytes: to be dropped when
    /// their buffer is gone.
    pub(super) fn decode<E>(
        self,
        sizes: Sizes,
        decode: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(Arc<Payload>, Reservation), PayloadError<E>> {
        let shared = &self.payloads.shared;
        let too_large = PayloadError::TooLarge {
            needed: sizes.decoded.saturating_add(sizes.stored),
            budget: shared.budget,
        };
        let Ok(len) = usize::try_from(sizes.decoded) else {
            return Err(too_large);
        };
        let Some((reserved, stored)) = shared.reserve(sizes) else {
            return Err(too_large);
        };
        let mut bytes = vec![0; len];
        decode(&mut bytes).map_err(PayloadError::Decode)?;
        let payload = Arc::new(Payload {
            bytes,
            _reserved: reserved,
        });
        let ready = Entry::Ready {
            payload: Arc::clone(&payload),
            used: Instant::now(),
        };
        shared.lock().entries.insert(self.key, ready);
        Ok((payload, stored))
    }
}

impl Drop for Turn<'_> {
    /// A turn that ended without a payload (a failure or a panic) passes to the next who asks.
    fn drop(&mut self) {
        let shared = &self.payloads.shared;
        let mut state = shared.lock();
        if matches!(state.entries.get(&self.key), Some(Entry::Decoding)) {
            state.entries.remove(&self.key);
        }
        drop(state);
        shared.changed.notify_all();
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

    /// Takes bytes from the budget, for the decoded and for the stored payload. Payloads that were
    /// not read for longest make room; if the rest is in use, waits. A thread that waits here
    /// holds nothing, so those that do will finish.
    fn reserve(self: &Arc<Self>, sizes: Sizes) -> Option<(Reservation, Reservation)> {
        let needed = sizes.decoded.checked_add(sizes.stored)?;
        if needed > self.budget {
            return None;
        }
        let mut state = self.lock();
        while self.budget - state.held.min(self.budget) < needed {
            let oldest = state
                .entries
                .iter()
                .filter_map(|(key, entry)| match entry {
                    Entry::Ready { used, .. } => Some((*used, *key)),
                    Entry::Decoding => None,
                })
                .min();
            match oldest.and_then(|(_, key)| state.entries.remove(&key)) {
                Some(evicted) => {
                    drop(state);
                    drop(evicted);
                    state = self.lock();
                }
                None => state = self.wait(state),
            }
        }
        state.held += needed;
        drop(state);
        let reservation = |len| Reservation {
            shared: Arc::clone(self),
            len,
        };
        Some((reservation(sizes.decoded), reservation(sizes.stored)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn get(payloads: &Payloads, key: Key, len: u64, decoded: &AtomicU64) -> Arc<Payload> {
        match payloads.find(key) {
            Found::Payload(payload) => payload,
            Found::Turn(turn) => {
                let sizes = Sizes {
                    decoded: len,
                    stored: 1,
                };
                let result = turn.decode(sizes, |out| {
                    decoded.fetch_add(1, Ordering::Relaxed);
                    out.fill(u8::try_from(key.1 % 251).unwrap());
                    Ok::<_, ()>(())
                });
                result.unwrap().0
            }
        }
    }

    #[test]
    fn one_thread_decodes_for_all() {
        let (payloads, decoded) = (Payloads::new(1000), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(get(&payloads, (0, 7), 900, &decoded)[899], 7));
            }
        });
        assert_eq!(decoded.load(Ordering::Relaxed), 1);
        assert_eq!(payloads.held(), 900);
        assert!(payloads.drop_idle(Instant::now() + IDLE));
        assert!(!payloads.drop_idle(Instant::now() + IDLE));
        assert_eq!(payloads.held(), 0);
    }

    #[test]
    fn many_readers_of_many_payloads_stay_inside_the_budget() {
        let (payloads, decoded) = (Payloads::new(250), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (payloads, decoded) = (&payloads, &decoded);
                scope.spawn(move || {
                    for n in 0..200 {
                        let sample = (n * 7 + thread) % 23;
                        let payload = get(payloads, (0, sample), 100, decoded);
                        assert_eq!(u64::from(payload[99]), sample);
                        assert!(payloads.held() <= 250);
                    }
                });
            }
        });
        assert!(payloads.held() <= 250);
    }

    #[test]
    fn what_never_fits_is_refused_and_failures_pass_the_turn_on() {
        let payloads = Payloads::new(10);
        let sizes = |decoded| Sizes { decoded, stored: 1 };
        let Found::Turn(turn) = payloads.find((0, 0)) else {
            panic!("nothing was decoded yet")
        };
        assert!(matches!(
            turn.decode(sizes(10), |_| Ok::<_, ()>(())),
            Err(PayloadError::TooLarge {
                needed: 11,
                budget: 10
            })
        ));
        let Found::Turn(turn) = payloads.find((0, 0)) else {
            panic!("the turn passes on")
        };
        assert!(matches!(
            turn.decode(sizes(5), |_| Err("bad")),
            Err(PayloadError::Decode("bad"))
        ));
        assert!(matches!(payloads.find((0, 0)), Found::Turn(_)));
        assert_eq!(payloads.held(), 0);
    }
}
