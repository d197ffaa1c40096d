#!/bin/sh
# Shows on a real cluster what `make demo-cluster` shows without one: cards are kept for a job while other pods ask for all of them.
#
#   tools/demo-cluster.sh [--once] [--installed]
#
#   --once        end without showing the page
#   --installed   the daemon of deploy/examples/demo, deploy/holds and deploy/provisioning are there: neither install nor remove them
#
# Takes Kubernetes 1.36 or later, an administrator's kubeconfig (KUBECONFIG, ~/.kube/config), kubectl, and the program
# hostler-controller (HOSTLER_CONTROLLER, the PATH, or target/). Nodes get the images hostler:0.2.0 and hostler-controller:0.2.0,
# or those that HOSTLER_IMAGE and HOSTLER_CONTROLLER_IMAGE name. Everything that is made is removed at the end, also after a failure.
set -eu

cd "$(dirname "$0")/.."
manifests=examples/cluster/manifests
# Seconds; an image may have to be pulled.
patience=180
kept=2
once=
installed=
# What has to be taken back, in reverse.
made=
work=$(mktemp -d)

# Objects without a namespace of their own are where the manifests say, whatever the context's is.
kube() { kubectl --namespace default "$@"; }
say() { printf '\n== %s\n' "$*"; }
fail() {
    printf 'demo-cluster: %s\n' "$*" >&2
    exit 1
}

for argument in "$@"; do
    case $argument in
    --once) once=1 ;;
    --installed) installed=1 ;;
    *)
        echo "usage: tools/demo-cluster.sh [--once] [--installed]" >&2
        exit 2
        ;;
    esac
done

find_controller() {
    for candidate in "${HOSTLER_CONTROLLER:-}" "$(command -v hostler-controller || true)" \
        "${CARGO_TARGET_DIR:-target}/release/hostler-controller" "${CARGO_TARGET_DIR:-target}/debug/hostler-controller"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "hostler-controller is not there: build it with \`make build\`, or name it with HOSTLER_CONTROLLER"
}

# Runs the controller's program as people do, and shows the call. 1 is an answer too: not all that was asked for fits.
ask() {
    printf '$ hostler-controller %s\n' "$*"
    status=0
    "$controller" "$@" || status=$?
    [ "$status" -le 1 ] || fail "hostler-controller $1 gave no answer (exit code $status)"
}

# Waits until a command succeeds.
until_true() {
    what=$1
    shift
    end=$(($(date +%s) + patience))
    until "$@" >"$work/last" 2>&1; do
        if [ "$(date +%s)" -ge "$end" ]; then
            cat "$work/last" >&2
            fail "waited $patience s in vain until $what"
        fi
        sleep 1
    done
}

# One attempt each, also where another failed: what is gone already is as it should be.
clean_up() {
    status=$?
    trap - EXIT INT TERM
    say "Everything goes that was made"
    if [ -n "${forward:-}" ]; then kill "$forward" 2>/dev/null || true; fi
    remove() { kubectl delete --ignore-not-found --timeout="${patience}s" "$@" >/dev/null 2>&1 || echo "left behind: $*"; }
    quietly() { remove --namespace default "$@"; }
    case $made in *objects*)
        quietly pods -l 'job in (stranger, training)'
        quietly reservations training
        quietly provisioningrequests encode-two encode-hundred
        quietly podtemplates encode
        quietly resourceclaimtemplates one-cpu card-to-keep kept-card
        for at in $(seq 0 "${free:-0}"); do quietly resourceclaimtemplates "stranger-$at"; done
        ;;
    esac
    case $made in *viewer*)
        quietly clusterrolebinding hostler-demo-viewer
        quietly clusterrole hostler-demo-viewer
        quietly serviceaccount hostler-demo-viewer
        ;;
    esac
    # A controller lets go of what it keeps; it goes last but for the kinds.
    case $made in *bundles*)
        quietly reservations --all
        # Most objects of bundles have a namespace of their own, which must be none but theirs.
        for bundle in examples/demo provisioning holds; do remove -k "deploy/$bundle"; done
        ;;
    esac
    case $made in *kind*) quietly -f tests/support/kinds/provisioningrequests.yaml ;; esac
    rm -rf "$work"
    exit "$status"
}

controller=$(find_controller)
kubectl version >"$work/version" 2>&1 || {
    cat "$work/version" >&2
    fail "the cluster cannot be reached"
}
if [ -z "$installed" ] && kubectl get namespace hostler-system >/dev/null 2>&1; then
    fail "hostler is installed here: this demonstration would replace its configuration, and remove it"
fi
trap clean_up EXIT
trap 'exit 130' INT TERM

if [ -z "$installed" ]; then
    say "hostler is installed: a daemon on every node, with two cards that a script makes up, and the controller"
    made=bundles
    for bundle in examples/demo holds provisioning; do
        echo "$ kubectl apply -k deploy/$bundle"
        kubectl apply -k "deploy/$bundle" >"$work/applied" || fail "deploy/$bundle cannot be applied"
    done
    if [ -n "${HOSTLER_IMAGE:-}" ]; then
        kubectl -n hostler-system set image daemonset/hostler "hostler=$HOSTLER_IMAGE"
    fi
    if [ -n "${HOSTLER_CONTROLLER_IMAGE:-}" ]; then
        kubectl -n hostler-controller set image deployment/hostler-controller "controller=$HOSTLER_CONTROLLER_IMAGE"
    fi
fi
if ! kubectl get crd provisioningrequests.autoscaling.x-k8s.io >/dev/null 2>&1; then
    made="$made kind"
    kube apply -f tests/support/kinds/provisioningrequests.yaml
    # The controller looks for the kind when it starts to lead.
    kubectl -n hostler-controller rollout restart deployment/hostler-controller
fi
kubectl -n hostler-system rollout status daemonset/hostler --timeout="${patience}s"
kubectl -n hostler-controller rollout status deployment/hostler-controller --timeout="${patience}s"

cards() {
    kubectl get resourceslices -o jsonpath='{range .items[?(@.spec.driver=="hostler.dev")].spec.devices[*]}{.name}{"\n"}{end}' |
        grep -c '^card-' || true
}
nodes=$(kubectl -n hostler-system get daemonset hostler -o jsonpath='{.status.numberReady}')
all_published() { [ "$(cards)" -eq $((nodes * 2)) ]; }
until_true "every daemon has published its cards" all_published

say "What is there"
ask availability
ask availability --by node

say "Would a job of eight pods with two CPUs each fit? Nothing is made of it"
ask plan --cluster -f "$manifests/job.yaml"

say "A batch system asks for two pods with a CPU each, and for a hundred (ProvisioningRequest)"
made="$made objects"
kube apply -f "$manifests/request.yaml"
kube wait provisioningrequest/encode-two --for=condition=Provisioned --timeout="${patience}s"
kube wait provisioningrequest/encode-hundred --for=condition=Provisioned=False --timeout="${patience}s"
ask explain provreq encode-two
ask explain provreq encode-hundred

say "Two cards are kept for the job \`training\` (Reservation): each daemon closes its own to all others"
kube apply -f "$manifests/reservation.yaml"
kube wait reservation/training --for=jsonpath='{.status.phase}'=Available --timeout="${patience}s"
kubectl get reservation training -o jsonpath='{range .status.devices[*]}{.pool}/{.device}{"\n"}{end}' | sort >"$work/kept"
[ "$(wc -l <"$work/kept")" -eq "$kept" ] || fail "not two devices are kept: $(cat "$work/kept")"
ask holds
ask explain reservation training

free=$(($(cards) - kept))
say "Strangers come: $((free + 1)) pods ask for a card each, and there are $free that are not kept"
for at in $(seq 0 "$free"); do
    sed "s/NAME/stranger-$at/" "$manifests/stranger.yaml" | kube apply -f - >/dev/null
done
scheduled() {
    kube get pods -l job=stranger \
        -o jsonpath="{range .items[*]}{.status.conditions[?(@.type==\"PodScheduled\")].status}{\"\n\"}{end}" | grep -c "^$1\$" || true
}
all_told() { [ "$(scheduled True)" -eq "$free" ] && [ "$(scheduled False)" -eq 1 ]; }
until_true "$free strangers have a node, and one waits" all_told
kube get pods -l job=stranger -o wide

# Devices of the claims whose names begin so.
given() {
    kube get resourceclaims -o jsonpath='{range .items[*]}{.metadata.name}{" "}{range .status.allocation.devices.results[*]}{.pool}/{.device}{end}{"\n"}{end}' |
        sed -n "s/^$1[^ ]* //p" | sort
}
given stranger- >"$work/taken"
both=$(comm -12 "$work/kept" "$work/taken")
[ -z "$both" ] || fail "a stranger got a card that is kept: $both"
echo "$free strangers have the other cards, and one waits: the two cards are kept."

say "The first pod of the job comes; its claim tolerates the taint of the cards that are kept for it"
value=$(kubectl get reservation training -o jsonpath='{.status.tolerationValue}')
sed "s/VALUE/$value/" "$manifests/owner.yaml" | kube apply -f -
kube wait pod/training-0 --for=condition=PodScheduled --timeout="${patience}s"
kube wait pod/training-0 --for=jsonpath='{.status.phase}'=Running --timeout="${patience}s"
given training-0 >"$work/owner"
comm -12 "$work/kept" "$work/owner" >"$work/both"
[ -s "$work/both" ] || fail "the pod has no card that was kept: $(cat "$work/owner")"
is_handed_over() { kubectl get reservation training -o jsonpath='{.status.devices[*].state}' | grep -q HandedOver; }
until_true "the Reservation says so" is_handed_over
ask holds -o wide

if [ -z "$once" ]; then
    say "The page, for a browser"
    made="$made viewer"
    kube create serviceaccount hostler-demo-viewer
    kube create clusterrole hostler-demo-viewer --verb=list \
        --resource=nodehardware.hostler.dev,resourceclaims.resource.k8s.io,resourceslices.resource.k8s.io,reservations.hostler.dev
    kube create clusterrolebinding hostler-demo-viewer --clusterrole=hostler-demo-viewer \
        --serviceaccount=default:hostler-demo-viewer
    kubectl -n hostler-controller port-forward deployment/hostler-controller 9440 >/dev/null &
    forward=$!
    echo "open https://127.0.0.1:9440/ and sign in with the token"
    kube create token hostler-demo-viewer --duration=1h
    echo "Enter ends it, and all of it goes."
    read -r _ || true
fi
echo "demo-cluster: all steps passed; two cards were kept for their job"
