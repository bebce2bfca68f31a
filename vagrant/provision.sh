#!/usr/bin/env bash
# Make a machine run the checkout in /opt/cwdp: a leaf switch with a Soft-RoCE NIC below it, an agent, and the manager
# where CWDP_ADDRESS is CWDP_MANAGER's. Run at every start, as the switch and the NIC do not outlive the machine.
set -euo pipefail

: "${CWDP_ADDRESS:?the address of this machine on the fabric}"
: "${CWDP_PEERS:?the addresses of the other machines}"
: "${CWDP_MANAGER:?the address of the machine with the manager}"
: "${CWDP_SECRET:?the secret of the cluster, 32 hexadecimal digits}"

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends make
make -C /opt/cwdp setup
ln -sf /opt/cwdp/.venv/bin/cwdp /usr/local/bin/cwdp

underlay=$(ip -oneline -4 address show to "$CWDP_ADDRESS/32" | awk '{print $2}')
[ -n "$underlay" ] || { echo "no interface has $CWDP_ADDRESS" >&2; exit 1; }
read -ra peers <<< "$CWDP_PEERS"

systemctl stop cwdp-agent.service 2> /dev/null || true
rdma=/opt/cwdp/tools/rdma/provision.sh
$rdma programs
$rdma leaf "$underlay" "${CWDP_ADDRESS##*.}" "${peers[@]}"
$rdma device roce0

install -d -m 0755 /etc/cwdp
umask 077
cat > /etc/cwdp/keys.toml <<EOF
send = 1

[[key]]
id = 1
secret = "$CWDP_SECRET"
EOF
umask 022
cat > /etc/cwdp/agent.toml <<EOF
nics = ["roce0"]
nats = "nats://$CWDP_MANAGER:4222"
EOF

units=(cwdp-agent.service)
if [ "$CWDP_ADDRESS" = "$CWDP_MANAGER" ]; then
	units+=(cwdp-manager.service)
	install -m 0644 /opt/cwdp/tools/systemd/cwdp.sysusers.conf /etc/sysusers.d/cwdp.conf
	systemd-sysusers
	systemctl disable --now nats-server.service 2> /dev/null || true # Debian's own holds the port
	cat > /etc/cwdp/manager.toml <<EOF
bus_listen = "$CWDP_MANAGER:4222"
listen = "$CWDP_MANAGER:9464"
EOF
fi
for unit in "${units[@]}"; do
	install -m 0644 "/opt/cwdp/tools/systemd/$unit" "/etc/systemd/system/$unit"
done
systemctl daemon-reload
systemctl enable -q "${units[@]}"
systemctl restart "${units[@]}"
