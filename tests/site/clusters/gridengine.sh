#!/bin/bash
# A real Grid Engine of one invented node on this machine, for tests.
#
#   gridengine.sh install | up | down | exec CMD.. | root CMD..
#
# Debian's packages are unpacked into a folder of their own: nothing is installed. sge_qmaster and sge_execd run in mount,
# process, host name and network namespaces, so that one kill of the first process ends them and every job.
# The node has 4 slots and 2 gpu, which are a number only.
set -euo pipefail

CACHE=${SGE_CACHE:-/var/cache/fsctx-gridengine}
STATE=${SGE_STATE:-/var/lib/fsctx-gridengine}
BIND=${SGE_BIND:-} # folders below /root that jobs need
JOBS_USER=pilot
NODE=g1.test
PIDFILE=$STATE/init.pid
PACKAGES=(gridengine-common gridengine-client gridengine-exec gridengine-master libjemalloc2)

say() { echo "gridengine: $*" >&2; }
die() {
    say "$*"
    exit 1
}

started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; } # when: tells a process from a later one of its number

init_pid() {
    local pid start
    { read -r pid start <"$PIDFILE"; } 2>/dev/null || return 1
    [[ -n $pid && $(started "$pid") == "$start" ]] && echo "$pid"
}

fetch() {
    command -v ip >/dev/null || die "there is no ip here: install iproute2"
    [[ ! -e $CACHE/usr ]] || return 0
    command -v apt-get >/dev/null || die "no apt-get to fetch ${PACKAGES[*]}"
    local new=$CACHE.new
    rm -rf "$new"
    mkdir -p "$new"
    (cd "$new" && { apt-get download -qq "${PACKAGES[@]}" || { apt-get update -qq && apt-get download -qq "${PACKAGES[@]}"; }; }) \
        >/dev/null 2>&1 || die "apt-get cannot download ${PACKAGES[*]}"
    for package in "$new"/*.deb; do dpkg-deb --extract "$package" "$new"; done
    rm -rf "$CACHE" "$new"/*.deb
    mv "$new" "$CACHE"
}

write_configuration() {
    local cell=$STATE/root/default/common
    cp -a "$CACHE/var/lib/gridengine" "$STATE/root"
    mkdir -p "$cell" "$STATE"/{spool,spool/qmaster,spool/qmaster/job_scripts,spool/execd,spool/db,conf}
    echo "$NODE" >"$cell/act_qmaster"
    # admin_user none: the daemons stay root
    sed -e 's/^admin_user .*/admin_user none/' -e "s|/var/spool/gridengine|$STATE/spool|" \
        -e "s|/spooldb|/db|" "$CACHE/usr/share/gridengine/default-bootstrap" >"$cell/bootstrap"
    sed -e "s|/var/spool/gridengine|$STATE/spool|" -e 's|^mailer .*|mailer /bin/true|' -e 's|^xterm .*|xterm /bin/true|' \
        -e 's|^load_report_time .*|load_report_time 00:00:02|' \
        "$CACHE/usr/share/gridengine/default-configuration" >"$STATE/conf/global"
    cat >"$STATE/init" <<INIT
#!/bin/bash
# The first process: makes the cluster, then stays its parent.
set -e
. $STATE/environment
lib=/usr/lib/gridengine
share=/usr/share/gridengine
\$lib/spoolinit berkeleydb libspoolb $STATE/spool/db init
\$lib/spooldefaults configuration $STATE/conf/global
\$lib/spooldefaults complexes \$share/util/resources/centry
\$lib/spooldefaults usersets \$share/util/resources/usersets
\$lib/spooldefaults managers root
export SGE_ND=1
set -m
/usr/sbin/sge_qmaster &
for k in \$(seq 100); do qconf -sh >/dev/null 2>&1 && break; sleep 0.1; done
qconf -as $NODE
qconf -sc | sed 's/^#.*//' >$STATE/conf/complexes
echo "gpu gpu INT <= YES YES 0 0" >>$STATE/conf/complexes
qconf -Mc $STATE/conf/complexes
printf 'hostname $NODE\nload_scaling NONE\ncomplex_values gpu=2\nuser_lists NONE\nxuser_lists NONE\nprojects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n' >$STATE/conf/node
qconf -Ae $STATE/conf/node
qconf -ssconf | sed 's/^schedule_interval .*/schedule_interval 0:0:1/' >$STATE/conf/scheduler
qconf -Msconf $STATE/conf/scheduler
qconf -sq | sed -e 's/^qname .*/qname all.q/' -e 's/^hostlist .*/hostlist $NODE/' -e 's/^slots .*/slots 4/' \
    -e 's|^tmpdir .*|tmpdir /tmp|' -e 's/^notify .*/notify 00:00:10/' -e 's/^rerun .*/rerun TRUE/' \
    -e 's/^load_thresholds .*/load_thresholds NONE/' -e 's/^pe_list .*/pe_list NONE/' >$STATE/conf/queue
qconf -Aq $STATE/conf/queue
/usr/sbin/sge_execd &
trap 'kill -TERM \$(jobs -p); exit 0' TERM
while :; do sleep 3600 & wait \$!; done
INIT
    cat >"$STATE/environment" <<SETTINGS
export SGE_ROOT=$STATE/root SGE_CELL=default SGE_CLUSTER_NAME=test SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445
SETTINGS
    cat >"$STATE/as" <<AS
#!/bin/bash
# as USER FOLDER CMD..: inside
who=\$1 folder=\$2
shift 2
cd "\$folder" 2>/dev/null || cd /
. $STATE/environment
[[ \$who != root ]] || exec "\$@"
export HOME=/ USER=\$who LOGNAME=\$who
exec setpriv --reuid "\$who" --regid "\$(id -g "\$who")" --init-groups -- "\$@"
AS
    cat >"$STATE/stage" <<STAGE
# In the new namespaces, on this machine's own root folder.
set -e
ip link set lo up
ip address add 10.11.12.13/32 dev lo
hostname $NODE
mount -t tmpfs -o mode=755 gridengine $STATE/mounts
mkdir $STATE/mounts/{etc,etc.work}
printf '127.0.0.1 localhost\n10.11.12.13 $NODE g1\n' >$STATE/mounts/etc/hosts
mount -t overlay -o lowerdir=/etc,upperdir=$STATE/mounts/etc,workdir=$STATE/mounts/etc.work etc /etc
mount -t overlay -o lowerdir=$CACHE/usr:/usr usr /usr
below=
for folder in $BIND; do [[ \$folder != /root/* || ! -e \$folder ]] || below="\$below \$folder"; done
if [[ -n \$below ]]; then # /root is closed to the jobs' user: only these are shown
    mkdir $STATE/mounts/root
    mount --rbind /root $STATE/mounts/root
    mount -t tmpfs -o mode=711 root /root
    for folder in \$below; do mkdir -p "\$folder" && mount --rbind "$STATE/mounts/root/\${folder#/root/}" "\$folder"; done
fi
mount -t proc proc /proc
cd /
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash $STATE/init
STAGE
    chmod 755 "$STATE"/{as,init}
}

up() {
    ((EUID == 0)) || die "must be root"
    ! init_pid >/dev/null || die "already up"
    fetch
    getent passwd "$JOBS_USER" >/dev/null || useradd --no-log-init --user-group --create-home "$JOBS_USER"
    rm -rf --one-file-system "$STATE"
    mkdir -p "$STATE"/{mounts,shared}
    chown "$JOBS_USER:" "$STATE/shared"
    write_configuration
    setsid unshare --mount --uts --net --pid --fork --propagation private bash "$STATE/stage" \
        </dev/null >"$STATE/log" 2>&1 &
    local parent=$! pid=
    for _ in $(seq 100); do
        pid=$(tr -d ' ' <"/proc/$parent/task/$parent/children" 2>/dev/null) || pid=
        [[ -z $pid ]] || break
        sleep 0.05
    done
    echo "$pid $(started "$pid")" >"$PIDFILE"
    for _ in $(seq 300); do
        ! is_ready || return 0
        init_pid >/dev/null || die "it ended: $(tail -n 5 "$STATE/log")"
        sleep 0.1
    done
    die "not ready: $(tail -n 5 "$STATE/log")"
}

is_ready() { # the node reports what it has
    (enter root qhost -F gpu) 2>/dev/null | grep -q 'gpu=2' && (enter root qstat -f) 2>/dev/null | grep -Eq '^all.q@.* [0-9.]+ +lx-[a-z0-9]+ *$'
}

down() {
    local pid
    if pid=$(init_pid); then
        kill -KILL "$pid" # the namespace's first process: the kernel ends all others
        for _ in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
    fi
    rm -rf --one-file-system "$STATE"
}

enter() {
    local who=$1 pid
    shift
    pid=$(init_pid) || die "not up"
    exec nsenter -t "$pid" -m -u -n -p -- "$STATE/as" "$who" "$PWD" "$@"
}

case ${1:-} in
install) fetch ;;
up) up ;;
down) down ;;
exec)
    shift
    enter "$JOBS_USER" "$@"
    ;;
root)
    shift
    enter root "$@"
    ;;
*)
    sed -n '2,9p' "$0"
    exit 2
    ;;
esac
