_datasetrt__mount() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="datasetrt__mount"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        datasetrt__mount)
            opts="-f -o -v -q -h -V --caches-from --skip-invalid --validate-cache --receipts --no-receipts --watch --scrub-rate --cache-memory --temp-disk --view --on-collision --no-auto-views --view-metadata --xattrs --foreground --control-at --allow-other --threads --uid --gid --umask --user --sandbox --fuse-fd --ready-fd --verbose --quiet --log-file --log-format --background-half --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --caches-from)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --validate-cache)
                    COMPREPLY=($(compgen -W "startup access" -- "${cur}"))
                    return 0
                    ;;
                --receipts)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --watch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --scrub-rate)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cache-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --temp-disk)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --view)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on-collision)
                    COMPREPLY=($(compgen -W "refuse suffix" -- "${cur}"))
                    return 0
                    ;;
                --view-metadata)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --control-at)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --threads)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --gid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --umask)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "off files full" -- "${cur}"))
                    return 0
                    ;;
                --fuse-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _datasetrt__mount -o nosort -o bashdefault -o default datasetrt-mount
else
    complete -F _datasetrt__mount -o bashdefault -o default datasetrt-mount
fi
