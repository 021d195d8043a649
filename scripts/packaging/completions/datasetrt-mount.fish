complete -c datasetrt-mount -l caches-from -d 'Read more cache folders from FILE, one path a line, after those named here' -r -F
complete -c datasetrt-mount -l validate-cache -d 'Compare the SHA-256 of all files: before mounting, or of each shard before its first byte is served [default when absent: check the structure only; bare: startup]' -r -f -a "startup\t'All of them, before mounting'
access\t'Each shard\'s once, before its first byte is served'"
complete -c datasetrt-mount -l receipts -d 'Keep receipts in DIR: caches whose files have not changed since --validate-cache found all of them right are not hashed again [default: $XDG_CACHE_HOME/datasetrt or ~/.cache/datasetrt]' -r -F
complete -c datasetrt-mount -l watch -d 'Look every SECONDS for caches of format 3 that were published below the given folders, and show them too; `echo rescan > MOUNTPOINT/.control/caches` does it at once' -r
complete -c datasetrt-mount -l scrub-rate -d 'Most bytes per second that a check behind the mount reads (docs/safety.md); 0 for no limit' -r
complete -c datasetrt-mount -l cache-memory -d 'Limit the memory of decoded samples, such as 64MiB; a compressed sample that needs more is decoded into a temporary file, see --temp-disk [default: a quarter of the memory of the machine or control group, at most 1GiB]' -r
complete -c datasetrt-mount -l temp-disk -d 'Limit the disk space of temporary files, in the folder TMPDIR or in /var/tmp: decoded samples that need more than --cache-memory, and tables over many samples' -r
complete -c datasetrt-mount -l view -d 'Show samples under /views/NAME by a path template, such as \'cats={label}/{sample_id:08}{ext} where label == "cat"\'; may be given again (docs/views.md)' -r
complete -c datasetrt-mount -l on-collision -d 'What to do with samples that a view would call the same' -r -f -a "refuse\t'Refuse to mount, naming two of them'
suffix\t'Put ~CACHE_ID-SAMPLE_ID before the extension'"
complete -c datasetrt-mount -l view-metadata -d 'Show a metadata.jsonl in each view' -r -f -a "auto\t'In views of pictures, sound or video, where loaders look for it'
on\t'In all'
off\t'In none'"
complete -c datasetrt-mount -s o -d 'Mount options, comma separated (`\\,` is a comma); takes the usual words of mount(8) and every long option of this program, as in -o allow_other,threads=8; `ro` mounts read-only, control files too, and saves a request after each read; `remount,ro` and `remount,rw` change that' -r
complete -c datasetrt-mount -l control-at -d 'Mount the control files alone at DIR, an existing directory; everything else then is mounted read-only, and /.control in it is a link to DIR. Both mounts end together' -r -F
complete -c datasetrt-mount -l threads -d 'Threads that answer the kernel; more help where shards lie on slow disks' -r
complete -c datasetrt-mount -l uid -d 'Owner of all files [default: that of each cache]' -r
complete -c datasetrt-mount -l gid -d 'Group of all files [default: that of each cache]' -r
complete -c datasetrt-mount -l umask -d 'Permission bits to take away from 0444, in octal [default: those that each cache lacks]' -r
complete -c datasetrt-mount -l user -d 'Once mounted as root, become this user, who must be able to read the caches; takes --allow-other, and cannot be said in -o, where `user` is a word of mount(8)' -r
complete -c datasetrt-mount -l sandbox -d 'What the serving threads may not do; files: change files elsewhere than beside manifests that can be migrated and in the folder for temporary files, where the kernel has Landlock; full: also use calls of the system that serving does not take, which costs some microseconds for each cold sample [default: files; bare: full]' -r -f -a "off\t'Only so far that they gain no privileges'
files\t'They change files only where they must'
full\t'And use only the calls of the system that they must'"
complete -c datasetrt-mount -l fuse-fd -d 'Serve on this file descriptor: /dev/fuse, opened and mounted by a process that may mount, for a daemon that may not. MOUNTPOINT then is only shown, and whoever mounted it unmounts it. A MOUNTPOINT of /dev/fd/N means the same, as `mount -o drop_privileges` says it' -r
complete -c datasetrt-mount -l ready-fd -d 'Write READY=1 to this file descriptor when the mount answers, then close it' -r
complete -c datasetrt-mount -l log-file -d 'Append the log to FILE [default: stderr while in the foreground, then nowhere]' -r -F
complete -c datasetrt-mount -l log-format -d 'How lines of the log look; json: one object a line, with time, level, program, pid, message' -r -f -a "text\t'For people; with a priority for the systemd journal, where stderr is one'
json\t'One JSON object a line: time, level, program, pid, message'"
complete -c datasetrt-mount -l skip-invalid -d 'Leave out caches that cannot be opened, with a warning; the others keep their positions [default: refuse to mount, naming every bad cache]'
complete -c datasetrt-mount -l no-receipts -d 'Neither use nor leave receipts'
complete -c datasetrt-mount -l no-auto-views -d 'Do not show the views that need no template (by-FIELD, path)'
complete -c datasetrt-mount -l xattrs -d 'Answer extended attributes of samples (user.datasetrt.*); costs requests in `ls -l` and `cp -a`'
complete -c datasetrt-mount -s f -l foreground -d 'Stay in the foreground [default: return once the mount answers]'
complete -c datasetrt-mount -l allow-other -d 'Let other users in (root is one of them), as far as the mode bits of the caches do; ordinary users may say so where /etc/fuse.conf has the line user_allow_other'
complete -c datasetrt-mount -s v -l verbose -d 'Log more; twice: everything (RUST_LOG overrides)'
complete -c datasetrt-mount -s q -l quiet -d 'Log errors only'
complete -c datasetrt-mount -l background-half -d 'This is the background half, with a socket to the other half as its standard output'
complete -c datasetrt-mount -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt-mount -s V -l version -d 'Print version'
