/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a steered queue pair's packets go while neither its path nor its backup is alive: to the other NIC of
 * the host that they are for, or by the other NIC of this host, or both.
 *
 * RDMA addresses cannot change under a queue pair, so the destination is another one on the way only: it is
 * rewritten here, and a bit of the BTH says so. The receiver's other NIC takes the bit for what it is, puts
 * its partner NIC's address back, clears the bit and gives the packet to that NIC. The bit is one of those
 * that are reserved before the destination QPN, which the ICRC takes as ones (IBTA A17.3.3), and the
 * ICRC stays that of the address that the packet had and will have; so it is right when the queue pair's NIC
 * sees it.
 *
 * The order is: path, backup, detour (the far NIC is dead), this host's other NIC (this one is dead), both.
 * The paths of the other NIC are those of its own table, watched by pulses of its own. A NIC is given up
 * later than a path. */
#pragma once

#include "steering/failover.h"
#include "steering/unasked.h"
#include "steering/steer.h"

#define DETOUR_MARK     0x01000000U /* of the word with the destination QPN: the lowest reserved bit */
#define NIC_DEAD_FACTOR 3 /* a NIC has so many times as long as a path before others take its place */
#define META_DETOURED   0x43574454U /* from XDP to tc ingress: for the partner NIC */

/* skb->tc_index, from one hook to the next. */
#define INDEX_SENT    0xc3d9 /* egress is done with it */
#define INDEX_ARRIVED 0xc3da /* given to this NIC by its partner */

#define IP_CHECK_BACK 10 /* from the UDP header back to the checksum of IPv4 */
#define QPN_AHEAD     (offsetof(struct cwdp_probe_packet, bth) + offsetof(struct cwdp_bth, qpn))
#define FAMILY_IPV4   2 /* AF_INET and AF_INET6 of <sys/socket.h> */
#define FAMILY_IPV6   10
#define MANGLED       BPF_F_MARK_MANGLED_0 /* leaves a checksum of zero as it is */

/* Where a steered packet goes, in the order of preference. */
enum route {
	ROUTE_PRIMARY,
	ROUTE_BACKUP,
	ROUTE_DETOUR,
	ROUTE_OTHER,
	ROUTE_OTHER_DETOUR,
};

static __always_inline struct cwdp_detour *find_detour(const struct cwdp_qp *qp)
{
	struct cwdp_address key;

	__builtin_memcpy(&key, qp->key.addr, sizeof(key));
	return bpf_map_lookup_elem(&detours, &key);
}

static __always_inline struct cwdp_path *find_other_path(__u32 index)
{
	__u32 zero = 0;
	void *table = index ? bpf_map_lookup_elem(&other_paths, &zero) : NULL;

	return table ? bpf_map_lookup_elem(table, &index) : NULL;
}

/* Is a path in reserve known to be alive, and the one in use dead, or not yet trusted again? */
static __always_inline bool is_better(const struct cwdp_path *candidate, const struct cwdp_path *path,
				      __u64 now, __u64 dead_after_ns)
{
	if (!candidate || candidate->state == CWDP_PATH_DOWN || !candidate->last_answer_ns ||
	    is_silent(candidate, now, dead_after_ns))
		return false;
	if (path->state == CWDP_PATH_DOWN && !is_silent(path, now, dead_after_ns))
		return true;
	dead_after_ns += SLOW_FACTOR * candidate->slow_ns;
	return is_silent(path, now, dead_after_ns) &&
	       candidate->answered_sent_ns >= path->waiting_since_ns + dead_after_ns / 2;
}

/* It is left for a detour: it has to be healthy for a while before it is used again. */
static __always_inline void give_up(const struct cwdp_control *settings, __u32 number, __u64 now)
{
	struct cwdp_path *path = find_path(number);

	if (path && path->state == CWDP_PATH_UP && is_silent(path, now, settings->dead_after_ns))
		path_down(settings, path, number, now);
}

static __always_inline bool is_alive(const struct cwdp_path *path, __u64 now, __u64 dead_after_ns)
{
	return path && path->state == CWDP_PATH_UP && !is_silent(path, now, dead_after_ns);
}

/* Neither path nor backup may be alive: the route that is; else the one of the two that would be taken. */
__noinline int choose_detour(const struct cwdp_control *settings, const struct cwdp_qp *qp, __u32 route)
{
	struct cwdp_path *path;
	struct cwdp_detour *detour;
	__u64 now, dead_after_ns;

	if (!settings || !qp)
		return ROUTE_PRIMARY;
	path = find_path(route == ROUTE_BACKUP ? qp->backup_path : qp->path);
	detour = find_detour(qp);
	now = clock_local_ns();
	dead_after_ns = settings->dead_after_ns;
	if (!path || !detour || is_alive(path, now, dead_after_ns) ||
	    is_alive(find_path(qp->backup_path), now, dead_after_ns))
		return route;
	if (is_better(find_path(detour->detour), path, now, dead_after_ns)) {
		route = ROUTE_DETOUR;
	} else {
		dead_after_ns *= NIC_DEAD_FACTOR;
		if (is_better(find_other_path(detour->other), path, now, dead_after_ns))
			route = ROUTE_OTHER;
		else if (is_better(find_other_path(detour->other_detour), path, now, dead_after_ns))
			route = ROUTE_OTHER_DETOUR;
		else
			return route;
		give_up(settings, detour->detour, now);
	}
	give_up(settings, qp->path, now);
	give_up(settings, qp->backup_path, now);
	return route;
}

static __always_inline bool is_in_doubt(const struct cwdp_path *path)
{
	return path && (path->state == CWDP_PATH_DOWN || path->unanswered >= UNANSWERED_MIN);
}

/* The route that pulses have a queue pair with a backup take now. */
static __always_inline __u32 asked_route(const struct cwdp_control *settings, const struct cwdp_qp *qp)
{
	__u32 route;

	if (!is_in_doubt(find_path(qp->path)))
		return ROUTE_PRIMARY;
	route = take_backup(settings, qp->path, qp->backup_path) ? ROUTE_BACKUP : ROUTE_PRIMARY;
	if (route == ROUTE_BACKUP && !is_in_doubt(find_path(qp->backup_path)))
		return route;
	return choose_detour(settings, qp, route);
}

/* The route that a queue pair with a backup is to take now. */
static __always_inline __u32 choose_route(const struct cwdp_control *settings, const struct cwdp_qp *qp)
{
	__u32 route = asked_route(settings, qp);

	if (route == ROUTE_PRIMARY && is_doubted(settings, qp->path, qp->backup_path))
		return ROUTE_BACKUP;
	return route;
}

/* The same for a packet that says again what its queue pair has said by `route`. */
static __always_inline __u32 doubt_route(struct cwdp_control *settings, const struct cwdp_qp *qp, __u32 route)
{
	if (route == ROUTE_PRIMARY)
		doubt_path(settings, qp->path, qp->backup_path);
	else if (route == ROUTE_BACKUP)
		doubt_path(settings, qp->backup_path, qp->path);
	else
		return route;
	return choose_route(settings, qp);
}

/* Have the UDP checksum at `at` follow a change of IPv6 addresses. One that is left to the device covers
 * these only, and the kernel changes it only where it is told of that; but told of it, it changes the NIC's
 * sum of the packet (CHECKSUM_COMPLETE) too, which is right over IPv4 alone. BPF_F_IPV6, which tells it so,
 * came with Linux 6.16. */
static __always_inline void update_udp_checksum(struct __sk_buff *skb, __u32 at, __s64 change)
{
	__u16 before = 0, after = 0;

	bpf_skb_load_bytes(skb, at, &before, sizeof(before));
	bpf_l4_csum_replace(skb, at, 0, change, MANGLED);
	bpf_skb_load_bytes(skb, at, &after, sizeof(after));
	if (before == after)
		bpf_l4_csum_replace(skb, at, 0, change, BPF_F_PSEUDO_HDR | MANGLED);
}

/* Give a packet another destination, with checksums of IP and UDP that agree, and mark it or not. The ICRC
 * stays. What no checksum makes up for goes into the NIC's sum of the packet, if there is one. */
static __always_inline bool set_destination(struct __sk_buff *skb, __u32 udp, bool is_ipv6,
					    const __be32 to[4], bool marked)
{
	__u32 qpn, new_qpn, check = udp + UDP_CHECK, at = udp - (is_ipv6 ? 16 : 4), sum_too;
	__be32 from[4] = {};
	__u16 checksum;

	if (bpf_skb_load_bytes(skb, udp + QPN_AHEAD, &qpn, sizeof(qpn)) ||
	    bpf_skb_load_bytes(skb, check, &checksum, sizeof(checksum)) ||
	    bpf_skb_load_bytes(skb, at, from, is_ipv6 ? 16 : 4))
		return false;
	sum_too = checksum ? 0 : BPF_F_RECOMPUTE_CSUM;
	if (bpf_skb_store_bytes(skb, at, to, is_ipv6 ? 16 : 4, is_ipv6 ? sum_too : 0))
		return false;
	if (is_ipv6) {
		update_udp_checksum(skb, check, bpf_csum_diff(from, 16, (__be32 *)to, 16, 0));
	} else {
		bpf_l3_csum_replace(skb, udp - IP_CHECK_BACK, from[0], to[0], sizeof(to[0]));
		bpf_l4_csum_replace(skb, check, from[0], to[0], BPF_F_PSEUDO_HDR | MANGLED | sizeof(to[0]));
	}
	new_qpn = marked ? qpn | bpf_htonl(DETOUR_MARK) : qpn & ~bpf_htonl(DETOUR_MARK);
	bpf_skb_store_bytes(skb, udp + QPN_AHEAD, &new_qpn, sizeof(new_qpn), sum_too);
	bpf_l4_csum_replace(skb, check, qpn, new_qpn, MANGLED | sizeof(qpn));
	return true;
}

/* Only what begins with a plain Ethernet header can be given another one. */
static __always_inline bool has_plain_link(const struct roce_packet *roce)
{
	return roce->udp_offset == ETH_HLEN + roce->ip_header_bytes;
}

/* Have a packet leave by an interface, with the link addresses of its next hop. */
static __always_inline int leave_by(__u32 ifindex, const struct cwdp_detour *detour)
{
	struct bpf_redir_neigh next_hop = {};

	if (!detour || !(detour->gateway[0] | detour->gateway[1] | detour->gateway[2] | detour->gateway[3]))
		return bpf_redirect_neigh(ifindex, NULL, 0, 0);
	if (detour->gateway[2] == bpf_htonl(0xffff) && !detour->gateway[0] && !detour->gateway[1]) {
		next_hop.nh_family = FAMILY_IPV4;
		next_hop.ipv4_nh = detour->gateway[3];
	} else {
		next_hop.nh_family = FAMILY_IPV6;
		__builtin_memcpy(next_hop.ipv6_nh, detour->gateway, sizeof(next_hop.ipv6_nh));
	}
	return bpf_redirect_neigh(ifindex, &next_hop, sizeof(next_hop), 0);
}

/* Egress: the packet takes a detour. */
__noinline int take_detour(struct __sk_buff *skb, struct roce_packet *roce, struct cwdp_qp *qp, __u32 route)
{
	struct cwdp_control *settings = find_control();
	struct cwdp_detour *detour;
	struct cwdp_path *path;
	__be32 dst[4];
	bool is_ipv6;

	if (!settings || !roce || !qp)
		return TC_ACT_UNSPEC;
	detour = find_detour(qp);
	if (!detour)
		return TC_ACT_UNSPEC;
	path = route == ROUTE_DETOUR  ? find_path(detour->detour)
	       : route == ROUTE_OTHER ? find_other_path(detour->other)
				      : find_other_path(detour->other_detour);
	if (!path || (route != ROUTE_DETOUR && !(has_plain_link(roce) && settings->partner.ifindex))) {
		count(CWDP_DETOUR_REFUSED);
		return TC_ACT_UNSPEC;
	}
	is_ipv6 = roce->ip_header_bytes == sizeof(struct ipv6hdr);
	__builtin_memcpy(dst, path->dst, sizeof(dst));
	if (!is_ipv6)
		dst[0] = dst[3];
	if (!rewrite_sport(skb, roce, qp, path->sport) ||
	    (route != ROUTE_OTHER && !set_destination(skb, roce->udp_offset, is_ipv6, dst, true))) {
		count(CWDP_DETOUR_REFUSED);
		return TC_ACT_UNSPEC;
	}
	if (skb->hash)
		bpf_set_hash_invalid(skb);
	skb->tc_index = INDEX_SENT;
	if (route != ROUTE_OTHER)
		count(CWDP_DETOUR_TAKEN);
	if (route != ROUTE_DETOUR) {
		count(CWDP_DETOUR_OTHER_NIC);
		return leave_by(settings->partner.ifindex, detour);
	}
	return has_plain_link(roce) ? leave_by(skb->ifindex, NULL) : TC_ACT_UNSPEC;
}

static __always_inline bool is_detoured(const struct frame *frame)
{
	return frame->packet->bth.qpn & bpf_htonl(DETOUR_MARK);
}

/* XDP: tell tc ingress of a packet for the partner NIC, where it will be counted. */
__noinline int announce_detoured(struct xdp_md *ctx)
{
	struct cwdp_control *settings = find_control();
	__u32 *meta;

	if (!settings || !settings->partner.ifindex || bpf_xdp_adjust_meta(ctx, -(int)sizeof(*meta))) {
		count(CWDP_DETOUR_UNKNOWN);
		return XDP_PASS;
	}
	meta = (void *)(long)ctx->data_meta;
	if ((void *)(meta + 1) <= (void *)(long)ctx->data)
		*meta = META_DETOURED;
	return XDP_PASS;
}

/* tc ingress: give a packet its own destination back, and give it to that NIC. */
__noinline int restore_destination(struct __sk_buff *skb)
{
	struct cwdp_control *settings = find_control();
	struct frame frame;
	__be32 dst[4];
	__u8 mac[ETH_ALEN];

	if (!settings || !parse_roce(&frame, skb_data(skb), (void *)(long)skb->data_end))
		return TC_ACT_UNSPEC;
	if (frame.is_ipv6)
		__builtin_memcpy(dst, settings->partner.ipv6, sizeof(dst));
	else
		dst[0] = settings->partner.ipv4;
	__builtin_memcpy(mac, settings->partner.mac, sizeof(mac));
	if (!dst[0] ||
	    !set_destination(skb, bytes_between(frame.eth, frame.packet), frame.is_ipv6, dst, false)) {
		count(CWDP_DETOUR_UNKNOWN);
		return TC_ACT_UNSPEC;
	}
	bpf_skb_store_bytes(skb, 0, mac, sizeof(mac), 0);
	skb->tc_index = INDEX_ARRIVED;
	count(CWDP_DETOUR_RESTORED);
	return bpf_redirect(settings->partner.ifindex, BPF_F_INGRESS);
}
