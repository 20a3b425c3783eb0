ip link set lo up
ip link add v0 type veth peer name v1
ip address add 172.30.0.1/24 dev v0
ip address add fd30::1/64 dev v0 nodad
ip link set v0 up
ip link set v1 up
