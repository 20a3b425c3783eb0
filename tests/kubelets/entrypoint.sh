#!/bin/bash
# Runs in a Node's container: containerd, kubelet and kube-proxy, with the files of /etc/kubernetes.
set -u
mount --make-rshared /
# Without --privileged /sys and the cgroups are mounted read-only.
mount -o remount,rw /sys
for place in $(awk '$2 ~ "^/sys/fs/cgroup" {print $2}' /proc/mounts); do mount -o remount,bind,rw "$place"; done
for setting in net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.route_localnet=1; do
  sysctl -qw "$setting"
done
mkdir -p /var/log /var/lib/kubelet /run/netns
[ -e /dev/kmsg ] || ln -s /dev/console /dev/kmsg
[ -s /etc/machine-id ] || tr -d - </proc/sys/kernel/random/uuid >/etc/machine-id

# kubelet's cgroupRoot must exist under every controller.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mkdir -p /sys/fs/cgroup/init /sys/fs/cgroup/kubelet # version 2: no processes beside child groups
  while read -r process; do echo "$process" >/sys/fs/cgroup/init/cgroup.procs; done </sys/fs/cgroup/cgroup.procs
  sed 's/\(^\| \)/ +/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
else
  for controller in /sys/fs/cgroup/*/; do
    [ ! -e "$controller/cpuset.cpus" ] || echo 1 >"$controller/cgroup.clone_children"
    mkdir -p "$controller/kubelet"
  done
fi
bash /etc/kubernetes/network.sh

keep() { # NAME COMMAND...: start it again when it ends
  local name=$1
  shift
  while :; do "$@" >>"/var/log/$name.log" 2>&1; sleep 0.5; done
}
keep kube-proxy /opt/kubernetes/kube-proxy --config=/etc/kubernetes/kube-proxy.yaml &
keep containerd containerd --config /etc/kubernetes/containerd.toml &
for _ in $(seq 300); do ctr version >/dev/null 2>&1 && break; sleep 0.1; done
for archive in /opt/images/*.tar; do ctr -n k8s.io images import "$archive" >>/var/log/images.log 2>&1; done
keep kubelet /opt/kubernetes/kubelet --config=/etc/kubernetes/kubelet.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \
  --hostname-override="$(hostname)" --node-ip="$NODE_ADDRESSES" $KUBELET_FLAGS &
wait
