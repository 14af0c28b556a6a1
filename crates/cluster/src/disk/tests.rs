//! Common behaviour of both disks, and crashes and exhaustion of the one in memory.

use std::io::ErrorKind;
use std::path::Path;

use super::*;

/// Runs a check on both disks, each in a separate directory.
fn on_both(check: fn(&dyn Disk, &Path)) {
    let temporary = tempfile::tempdir().unwrap();
    check(&RealDisk::new(), &temporary.path().join("a/b"));
    check(&MemDisk::new(), Path::new("a/b"));
}

#[test]
fn appended_bytes_can_be_read_at_any_offset() {
    on_both(|disk, dir| {
        disk.create_dir_all(dir).unwrap();
        disk.create_dir_all(dir).unwrap();
        let path = dir.join("file");
        let mut file = disk.open_append(&path).unwrap();
        assert!(file.is_empty());
        file.append(b"hello ").unwrap();
        file.append_vectored(&[b"wor", b"", b"ld"]).unwrap();
        file.append_vectored(&[]).unwrap();
        let all = b"hello world";
        assert_eq!(file.len(), 11);
        for start in 0..14 {
            for len in 0..14 {
                let expected = &all[start.min(11)..(start + len).min(11)];
                assert_eq!(file.read_at(start as u64, len).unwrap(), expected);
            }
        }
        assert_eq!(file.read_at(u64::MAX, 5).unwrap(), "");
        assert_eq!(file.read_at(3, usize::MAX).unwrap(), "lo world");
        file.truncate(20).unwrap();
        file.truncate(5).unwrap();
        file.append(b"!").unwrap();
        file.sync().unwrap();
        assert_eq!(disk.read_all(&path).unwrap(), "hello!");
        drop(file);
        let mut file = disk.open_append(&path).unwrap();
        file.append(b"?").unwrap();
        assert_eq!(disk.read_all(&path).unwrap(), "hello!?");
    });
}

#[test]
fn holes_read_as_zeros_and_can_be_cut() {
    on_both(|disk, dir| {
        disk.create_dir_all(dir).unwrap();
        let mut all = Vec::new();
        let mut file = disk.open_append(&dir.join("file")).unwrap();
        for (zeros, others) in [(0, 3), (200, 1), (64, 0), (63, 70), (300, 0), (10, 10)] {
            let mut part = vec![0; zeros];
            part.extend((0..others).map(|n| n as u8 + 1));
            file.append(&part).unwrap();
            all.extend_from_slice(&part);
        }
        for cut in [usize::MAX, all.len() - 5, 500, 470, 330, 204, 100, 2, 0] {
            all.truncate(cut);
            file.truncate(cut as u64).unwrap();
            assert_eq!(file.len(), all.len() as u64);
            for start in (0..all.len() + 10).step_by(7) {
                for len in [1, 50, 64, 130, 400] {
                    let start = start.min(all.len());
                    let expected = &all[start..(start + len).min(all.len())];
                    assert_eq!(file.read_at(start as u64, len).unwrap(), expected);
                }
            }
        }
        file.append(b"end").unwrap();
        assert_eq!(file.read_at(0, 10).unwrap(), "end");
    });
}

#[test]
fn files_and_directories_are_created_renamed_and_removed() {
    on_both(|disk, dir| {
        let file = dir.join("x");
        assert_eq!(disk.list(dir).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.open_append(&file).err().unwrap().kind(), ErrorKind::NotFound);
        assert_eq!(disk.write_atomic(&file, b"1").unwrap_err().kind(), ErrorKind::NotFound);
        disk.create_dir_all(dir).unwrap();
        assert_eq!(disk.read_all(&file).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(disk.remove_file(&file).unwrap_err().kind(), ErrorKind::NotFound);
        disk.write_atomic(&file, b"1").unwrap();
        disk.write_atomic(&file, b"22").unwrap();
        assert_eq!(disk.read_all(&file).unwrap(), "22");
        disk.create_dir_all(&dir.join("sub/subsub")).unwrap();
        disk.write_atomic(&dir.join("a"), b"3").unwrap();
        assert_eq!(disk.list(dir).unwrap(), [dir.join("a"), dir.join("sub"), dir.join("x")]);
        disk.rename(&dir.join("a"), &file).unwrap();
        assert_eq!(disk.read_all(&file).unwrap(), "3");
        let moved = dir.with_file_name("moved");
        disk.rename(dir, &moved).unwrap();
        assert!(!disk.exists(dir) && !disk.exists(&file));
        assert!(disk.exists(&moved.join("sub/subsub")));
        assert_eq!(disk.read_all(&moved.join("x")).unwrap(), "3");
        disk.remove_file(&moved.join("x")).unwrap();
        disk.remove_dir_all(&moved).unwrap();
        assert!(!disk.exists(&moved));
        assert_eq!(disk.remove_dir_all(&moved).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

/// `a-b` and `a.c` sort next to `a`: in byte order the files of `a` are between them.
#[test]
fn a_listing_excludes_directories_with_a_similar_name() {
    on_both(|disk, dir| {
        let names = ["a", "a-b", "a.c", "b"].map(|name| dir.join(name));
        for name in &names {
            disk.create_dir_all(&name.join("deep")).unwrap();
            disk.open_append(&name.join("x")).unwrap();
            disk.open_append(&name.join("deep").join("y")).unwrap();
        }
        for name in &names {
            assert_eq!(disk.list(name).unwrap(), [name.join("deep"), name.join("x")]);
        }
        assert_eq!(disk.list(dir).unwrap(), names);
    });
}

#[test]
fn a_crash_keeps_synced_bytes_and_the_chosen_part_of_the_others() {
    for kept in 0..=4 {
        let disk = MemDisk::new();
        let mut file = disk.open_append(Path::new("f")).unwrap();
        file.append(b"abc").unwrap();
        file.sync().unwrap();
        file.append(b"defg").unwrap();
        disk.crash_with(|path, unsynced| {
            assert_eq!((path, unsynced), (Path::new("f"), 4));
            kept
        });
        let left = disk.read_all(Path::new("f")).unwrap();
        assert_eq!(left, b"abcdefg"[..3 + kept as usize]);
        assert_eq!(disk.used(), 3 + kept);
        // The handle belongs to a dead process; a newly opened one does not.
        assert!(file.append(b"x").is_err() && file.truncate(0).is_err() && file.sync().is_err());
        disk.open_append(Path::new("f")).unwrap().append(b"y").unwrap();
        disk.crash(false);
        assert_eq!(disk.read_all(Path::new("f")).unwrap(), left);
    }
}

#[test]
fn a_crash_can_be_limited_to_one_directory() {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new("one")).unwrap();
    disk.create_dir_all(Path::new("two")).unwrap();
    let mut one = disk.open_append(Path::new("one/f")).unwrap();
    let mut two = disk.open_append(Path::new("two/f")).unwrap();
    one.append(b"1").unwrap();
    two.append(b"2").unwrap();
    drop(one);
    disk.crash_under(Path::new("one"), |_, _| 0);
    assert_eq!(disk.read_all(Path::new("one/f")).unwrap(), "");
    two.append(b"2").unwrap();
    assert_eq!(disk.read_all(Path::new("two/f")).unwrap(), "22");
}

#[test]
fn a_full_disk_writes_the_part_that_fits() {
    let disk = MemDisk::new();
    let path = Path::new("f");
    let mut file = disk.open_append(path).unwrap();
    disk.set_capacity(Some(5));
    file.append(b"abc").unwrap();
    assert_eq!(file.append(b"defg").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!((file.len(), disk.used()), (5, 5));
    file.truncate(3).unwrap();
    assert_eq!(
        disk.write_atomic(Path::new("g"), b"123").unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert!(!disk.exists(Path::new("g")));
    disk.write_atomic(Path::new("g"), b"12").unwrap();
    disk.remove_file(path).unwrap();
    assert_eq!(disk.used(), 2);
    disk.set_capacity(None);
    disk.write_atomic(Path::new("g"), &[0; 100]).unwrap();
}

/// Returns numbers below `n` that depend on the number of calls.
fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
    let entropy = curtail_net::Entropy::from_seed(seed);
    move |n| entropy.below(n)
}

#[test]
fn a_torn_crash_keeps_synced_bytes_under_synced_names() {
    let (dir, path) = (Path::new("d"), Path::new("d/f"));
    let mut lengths = std::collections::BTreeSet::new();
    let mut holes = 0;
    for seed in 0..200 {
        let disk = MemDisk::new();
        disk.create_dir_all(dir).unwrap();
        let mut file = disk.open_append(path).unwrap();
        file.append(b"abc").unwrap();
        file.sync().unwrap();
        disk.sync_dir(dir).unwrap();
        file.append(&[7; 2000]).unwrap();
        disk.crash_torn(dice(seed));
        assert!(file.append(b"x").is_err());
        let left = disk.read_all(path).unwrap();
        assert_eq!(left[..3], *b"abc");
        assert_eq!(disk.used(), left.len() as u64);
        lengths.insert(left.len());
        holes += u32::from(left[3..].contains(&0));
        // The remaining bytes are durable.
        disk.crash_torn(dice(seed + 1));
        assert_eq!(disk.read_all(path).unwrap(), left);
    }
    assert!(lengths.len() > 50 && lengths.contains(&3) && lengths.contains(&2003), "{lengths:?}");
    assert!(holes > 20, "{holes}");
}

#[test]
fn a_torn_crash_may_undo_unsynced_changes_of_a_directory() {
    let dir = Path::new("d");
    let path = |name: &str| dir.join(name);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = MemDisk::new();
        disk.create_dir_all(dir).unwrap();
        disk.write_atomic(&path("replaced"), b"old").unwrap();
        disk.write_atomic(&path("removed"), b"old").unwrap();
        for name in ["replaced", "removed"] {
            disk.open_append(&path(name)).unwrap().sync().unwrap();
        }
        disk.sync_dir(dir).unwrap();
        disk.write_atomic(&path("replaced"), b"new").unwrap();
        disk.remove_file(&path("removed")).unwrap();
        disk.open_append(&path("created")).unwrap();
        disk.write_durable(&path("durable"), b"kept").unwrap();
        // The sync of the directory above also made this durable.
        disk.write_atomic(&path("late"), b"new").unwrap();
        disk.crash_torn(dice(seed));
        assert_eq!(disk.read_all(&path("durable")).unwrap(), "kept");
        assert!(disk.exists(&path("created")) && !disk.exists(&path("removed")));
        let replaced = disk.read_all(&path("replaced")).unwrap();
        seen.insert((disk.exists(&path("late")), replaced.to_vec()));
    }
    assert!(seen.contains(&(false, b"new".to_vec())), "{seen:?}");
    assert!(seen.contains(&(true, Vec::new())), "a name without its bytes: {seen:?}");

    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = MemDisk::new();
        disk.create_dir_all(dir).unwrap();
        disk.write_durable(&path("replaced"), b"old").unwrap();
        disk.write_durable(&path("removed"), b"old").unwrap();
        disk.write_atomic(&path("replaced"), b"new").unwrap();
        disk.remove_file(&path("removed")).unwrap();
        disk.open_append(&path("created")).unwrap();
        disk.crash_torn(dice(seed));
        let replaced = disk.read_all(&path("replaced")).unwrap() == "old";
        seen.insert((replaced, disk.exists(&path("removed")), disk.exists(&path("created"))));
    }
    assert_eq!(seen.len(), 8, "every combination: {seen:?}");
}
