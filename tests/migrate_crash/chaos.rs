//! SIGKILL at a random moment, again and again (scripts/migrate-chaos.sh has more rounds).

use std::process::Stdio;
use std::time::{Instant, SystemTime};

use crate::list::List;

const CACHES: usize = 50;

#[test]
fn a_kill_at_a_random_moment_loses_nothing() {
    let rounds = std::env::var("DATASETRT_CHAOS_ROUNDS").ok();
    let rounds: u32 = rounds.map_or(25, |rounds| rounds.parse().unwrap());
    let seed = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let mut random = u64::from(seed.subsec_nanos()) | 1;
    eprintln!("seed {random}");

    let list = List::new(CACHES);
    let start = Instant::now();
    assert!(list.command().output().unwrap().status.success());
    let whole_run = start.elapsed();

    let mut histogram = [0_u32; 4];
    for round in 0..rounds {
        list.reset();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let delay = whole_run.mul_f64((random >> 32) as f64 / f64::from(u32::MAX));
        let mut process = list.command().stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(delay);
        process.kill().unwrap();
        process.wait().unwrap();
        let done = list.check_and_finish();
        let kind = match done {
            0 => 0,
            CACHES => 3,
            _ if list.left_count() == 0 => 1,
            _ => 2,
        };
        histogram[kind] += 1;
        if (round + 1) % 100 == 0 {
            eprintln!("{} rounds", round + 1);
        }
    }
    let [none, between, within, all] = histogram;
    eprintln!(
        "{rounds} kills of a migration of {CACHES} caches in {} ms: {none} before the first \
         manifest, {between} between two, {within} within one, {all} after the last; nothing lost",
        whole_run.as_millis()
    );
}
