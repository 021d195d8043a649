//! What a request costs once the buffers of its thread are there.

use datasetrt::format::record::Compression;
use datasetrt::vfs::Vfs;

use crate::alloc::requests_of;
use crate::common::fixture::Fixture;
use crate::common::noise::noise;
use crate::{look, tree_of};

const SAMPLES: u64 = 40;

#[test]
fn a_look_up_and_a_read_allocate_nothing() {
    for len in [100, 4096, 20_000, 100_000] {
        for lz4 in [false, true] {
            let compression = if lz4 {
                Compression::Lz4
            } else {
                Compression::None
            };
            let payloads = (0..SAMPLES).map(|seed| noise(len, seed));
            let fixture = Fixture::new().v2().compression(compression);
            let cache = fixture.payloads(payloads).build();
            let names: Vec<String> = (0..SAMPLES).map(|sample| sample.to_string()).collect();
            let mut reply = vec![0; len];
            let mut serve = |vfs: &Vfs, folder, sample: usize| {
                let attr = vfs.lookup(folder, names[sample].as_ref()).unwrap();
                vfs.read(attr.ino, 0, &mut reply).unwrap()
            };
            // The buffers of this thread fit all records then.
            let [first, second] = [tree_of(&[&cache]), tree_of(&[&cache])];
            let folder = look(&first, "samples/0").unwrap().ino;
            for sample in 0..SAMPLES as usize {
                assert_eq!(serve(&first, folder, sample), len);
            }
            // Opens the shard, and has lengths remembered.
            assert_eq!(serve(&second, folder, 0), len);
            let rest = 1..SAMPLES as usize;
            let (served, requests) = requests_of(|| {
                rest.map(|sample| serve(&second, folder, sample))
                    .sum::<usize>()
            });
            assert_eq!(served, len * (SAMPLES as usize - 1));
            assert_eq!(requests, 0, "{len} bytes, lz4: {lz4}");
        }
    }
}
