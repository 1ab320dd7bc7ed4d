/* The part of the program that needs nDPI's headers: modules, the memory of flows, verdicts, names. */

#include <stdint.h>
#include <string.h>
#include <ndpi_api.h>

/* As `Seen` in ndpi.rs. The texts belong to the flow or the module, and end with 0. */
struct nf_seen {
  uint16_t master, application, category;
  uint8_t confidence, final;
  const char *host, *ja3_client, *ja3_server;
};

static const char empty[] = "";

struct ndpi_detection_module_struct *nf_open(void) {
  struct ndpi_detection_module_struct *module;
  NDPI_PROTOCOL_BITMASK all;

  /* The headers that this was compiled with must be those of the library: the layout of a flow is in them. */
  if(ndpi_get_api_version() != NDPI_API_VERSION || ndpi_detection_get_sizeof_ndpi_flow_struct() != sizeof(struct ndpi_flow_struct))
    return NULL;
  module = ndpi_init_detection_module(ndpi_no_prefs);
  if(!module)
    return NULL;
  NDPI_BITMASK_SET_ALL(all);
  ndpi_set_protocol_detection_bitmask2(module, &all);
  ndpi_finalize_initialization(module);
  return module;
}

struct ndpi_flow_struct *nf_flow(void) {
  struct ndpi_flow_struct *flow = ndpi_flow_malloc(sizeof(struct ndpi_flow_struct));

  if(flow)
    memset(flow, 0, sizeof(struct ndpi_flow_struct));
  return flow;
}

void nf_free(struct ndpi_flow_struct *flow) {
  ndpi_flow_free(flow);
}

/* The protocol behind the IP header of a packet, as ndpiReader sees it; 0 if there is none. */
uint8_t nf_layer4(const uint8_t *packet, uint16_t length) {
  const uint8_t *next;
  uint16_t rest;
  uint8_t protocol;

  if(length >= 20 && packet[0] >> 4 == 4)
    return packet[9];
  if(length < 40 || packet[0] >> 4 != 6)
    return 0;
  next = packet + 40, rest = packet[4] << 8 | packet[5], protocol = packet[6];
  return ndpi_handle_ipv6_extension_headers(length - 40, &next, &rest, &protocol) == 0 ? protocol : 0;
}

static void tell(const struct ndpi_flow_struct *flow, ndpi_protocol protocol, struct nf_seen *seen) {
  const int tls = flow->protos.tls_quic.ja3_client[0] != '\0' || protocol.app_protocol == NDPI_PROTOCOL_TLS ||
    protocol.master_protocol == NDPI_PROTOCOL_TLS || protocol.app_protocol == NDPI_PROTOCOL_QUIC || protocol.master_protocol == NDPI_PROTOCOL_QUIC;

  seen->master = protocol.master_protocol, seen->application = protocol.app_protocol, seen->category = protocol.category;
  seen->confidence = flow->confidence;
  seen->host = flow->host_server_name;
  /* Other protocols use the same bytes for other things: the reader takes 32 hexadecimal digits only. */
  seen->ja3_client = tls ? flow->protos.tls_quic.ja3_client : empty;
  seen->ja3_server = tls ? flow->protos.tls_quic.ja3_server : empty;
}

static ndpi_protocol give_up(struct ndpi_detection_module_struct *module, struct ndpi_flow_struct *flow) {
  uint8_t guessed;

  return ndpi_detection_giveup(module, flow, 1, &guessed);
}

/* As packet_processing() of nDPI's example/reader_util.c: `enough` says that this is the last packet, whatever comes of it. */
void nf_packet(struct ndpi_detection_module_struct *module, struct ndpi_flow_struct *flow, const uint8_t *packet, uint16_t length,
               uint64_t time_ms, int enough, struct nf_seen *seen) {
  ndpi_protocol protocol = ndpi_detection_process_packet(module, flow, packet, length, time_ms);

  seen->final = enough || (protocol.app_protocol != NDPI_PROTOCOL_UNKNOWN && !ndpi_extra_dissection_possible(module, flow));
  if(seen->final && protocol.app_protocol == NDPI_PROTOCOL_UNKNOWN)
    protocol = give_up(module, flow);
  tell(flow, protocol, seen);
}

void nf_give_up(struct ndpi_detection_module_struct *module, struct ndpi_flow_struct *flow, struct nf_seen *seen) {
  seen->final = 1;
  tell(flow, give_up(module, flow), seen);
}

unsigned nf_protocols(struct ndpi_detection_module_struct *module) {
  return ndpi_get_num_supported_protocols(module);
}

unsigned nf_categories(void) {
  return NDPI_PROTOCOL_NUM_CATEGORIES;
}

const char *nf_protocol(struct ndpi_detection_module_struct *module, uint16_t id) {
  return ndpi_get_proto_name(module, id);
}

const char *nf_category(struct ndpi_detection_module_struct *module, uint16_t id) {
  return ndpi_category_get_name(module, (ndpi_protocol_category_t)id);
}

const char *nf_version(void) {
  return ndpi_revision();
}
