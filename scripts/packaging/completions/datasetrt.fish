# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_datasetrt_global_optspecs
    string join \n h/help V/version
end

function __fish_datasetrt_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_datasetrt_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_datasetrt_using_subcommand
    set -l cmd (__fish_datasetrt_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c datasetrt -n "__fish_datasetrt_needs_command" -s h -l help -d 'Print help'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -s V -l version -d 'Print version'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "demo" -d 'Write a small data set to try things on: 64 pictures in two caches, DIR/demo-lz4 and DIR/demo-plain, always the same'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "migrate" -d 'Upgrade manifests from format 2 to format 3, each cache keeping its id'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "pack" -d 'Write a new cache from folders, tar archives or a table'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "verify" -d 'Check everything that can be checked of caches, and list every damage'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "info" -d 'Tell what caches are: identity, sizes, fields and their values'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "ls" -d 'List the samples of a cache: number, size in bytes, metadata'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "cat" -d 'Print the payload of one sample, whole or not at all'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "top" -d 'Watch what a mount is doing'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "umount" -d 'Unmount, or name the processes that use the mount'
complete -c datasetrt -n "__fish_datasetrt_needs_command" -f -a "doctor" -d 'Find out why a mount does not work, before or after trying it'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand demo" -s h -l help -d 'Print help'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand migrate" -l to -d 'The format to migrate to; 3 is the only one' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand migrate" -l caches-from -d 'Read more cache folders from FILE, one path a line, after those named here' -r -F
complete -c datasetrt -n "__fish_datasetrt_using_subcommand migrate" -s n -l dry-run -d 'Check everything and show what would change, without changing it'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand migrate" -l json -d 'Print the report as one line of JSON: {"Ok":{"entries":[...]}}, or {"Err":{"path":...,"message":...,"entries":[...]}}'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l name -d 'Name of the cache: one plain folder name, from which its id is made' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l table -d 'Pack the rows of this table (.jsonl, .csv, .tsv, .parquet, .arrow)' -r -F
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l payload-column -d 'The table\'s column that names the payload files, or holds the payloads as binary values' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l group -d 'Members of archives that belong together' -r -f -a "webdataset\t'Members that stand together and share the path up to the first dot of the file name are one sample; .json, .txt and .cls members are its metadata'"
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l payload -d 'Extension of the members that are payloads; may be given several times' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l metadata -d 'Join the rows of this table (.jsonl, .csv, .tsv) to the samples by path' -r -F
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l metadata-key -d 'That table\'s column of paths' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l type -d 'Type of a field (bool, int, float, string); may be given several times' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l drop -d 'Leave a field of the table or archive out; may be given several times' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l compression -d 'How payloads are stored' -r -f -a "none\t'As they are'
lz4\t'One LZ4 block each'"
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l max-shard-bytes -d 'Most bytes of a shard; a larger sample gets one of its own' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -s j -l jobs -d 'Threads that read and compress (default: one for each core)' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l no-path -d 'Store no path'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l label -d 'Store the parent folder\'s name as label, whatever the folders look like'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l no-label -d 'Store no label'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l lossy-path -d 'Put U+FFFD for what is not UTF-8 in names and text'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l dry-run -d 'Read all metadata and look at every payload file, but write nothing'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -l json -d 'Print the result as a JSON object'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand pack" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand verify" -l caches-from -d 'Read more cache folders from FILE, one path a line, after those named here' -r -F
complete -c datasetrt -n "__fish_datasetrt_using_subcommand verify" -s j -l jobs -d 'Number of threads (default: one for each core)' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand verify" -l quick -d 'Check the structure only: no payload is read and no checksum computed'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand verify" -l json -d 'Print one JSON object: `findings`, `caches`, `damage`, `warnings`'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand verify" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand info" -l caches-from -d 'Read more cache folders from FILE, one path a line, after those named here' -r -F
complete -c datasetrt -n "__fish_datasetrt_using_subcommand info" -l plot -d 'Also draw the sizes of the samples and the counts of their labels (field `label`, or the text field with the fewest distinct values)' -r -F
complete -c datasetrt -n "__fish_datasetrt_using_subcommand info" -l json -d 'Print one JSON object with the list `caches`'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand info" -l quick -d 'Tell only what the manifest says: no sizes of samples, no values'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand info" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand ls" -l arrow -d 'Write an Arrow IPC file with the columns `sample_id`, `size` and the metadata, `-` for stdout; damaged samples are left out, and named on stderr' -r -F
complete -c datasetrt -n "__fish_datasetrt_using_subcommand ls" -l head -d 'Stop after the first N samples' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand ls" -l json -d 'Print one JSON object a line: `sample_id`, `size`, `metadata`, or `sample_id`, `damaged`'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand cat" -l metadata -d 'Print the sample\'s metadata as one line of JSON instead'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand cat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand top" -l interval -d 'Seconds between two looks' -r
complete -c datasetrt -n "__fish_datasetrt_using_subcommand top" -l once -d 'Print one snapshot and end'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand umount" -s l -l lazy -d 'Unmount although it is in use: nobody finds it any more, and it ends when the last user does'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand umount" -l if-mounted -d 'Succeed also when nothing is mounted there'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand umount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand doctor" -l json -d 'Print one JSON object: {"failed":0,"checks":[{"check":...,"status":"ok"|"warn"|"fail", "found":...,"fix":...}]}'
complete -c datasetrt -n "__fish_datasetrt_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
