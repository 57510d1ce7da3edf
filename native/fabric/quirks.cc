// SPDX-License-Identifier: Apache-2.0
// Copyright The Cinnabar Authors
#include "fabric/quirks.h"

#include <rdma/fabric.h>

#include <array>
#include <cstdlib>

namespace cinnabar::fabric {
namespace {

constexpr const char* kSocketsSymptom =
    "a child process inherits the sockets, nobody hears of a refused connection, and a process "
    "without descriptors spins";
constexpr const char* kSocketsReason =
    "the provider makes descriptors that stay open in exec, keeps the error of a failed connect to "
    "itself and answers EAGAIN for ever (xnet_connect_done, xnet_get_conn), and leaves what it "
    "cannot accept in the listener's queue (xnet_accept_sock)";
constexpr const char* kStreamsSymptom = "56 bytes from anybody who can connect end the process";
constexpr const char* kStreamsReason =
    "the fields of a header are believed: an acknowledgement that nobody awaits is taken from an "
    "empty list (xnet_handle_ack), runs of memory are counted by the sender (xnet_op_write). Read "
    "in 1.17 to 2.6 and in the development of August 2026";

constexpr std::array kQuirks = {
    QuirkEntry{Quirk::innerWaitFd, "net", kAnyVersion, FI_VERSION(1, 18),
               "an idle port wakes for ever",
               "fi_trywait does not take back the queue's own signal, so its descriptor stays "
               "readable after the first completion (mended in 1.18.2)"},
    QuirkEntry{Quirk::leavesSockets, "net", kAnyVersion, kEver, kSocketsSymptom, kSocketsReason},
    QuirkEntry{Quirk::leavesSockets, "tcp", kAnyVersion, kEver, kSocketsSymptom, kSocketsReason},
    QuirkEntry{Quirk::trustsStreams, "net", kAnyVersion, kEver, kStreamsSymptom, kStreamsReason},
    QuirkEntry{Quirk::trustsStreams, "tcp", kAnyVersion, kEver, kStreamsSymptom, kStreamsReason},
    QuirkEntry{
        Quirk::drainBeforeClose, "verbs;ofi_rxm", kAnyVersion, kEver,
        "SIGSEGV in fi_close of the endpoint",
        "rxm reads the completions that a connection left after it has freed the connection, "
        "and posts their receives to it again (rxm_close_conn, rxm_flush_msg_cq)"},
    QuirkEntry{Quirk::losesInjected, "verbs;ofi_rxm", kAnyVersion, kEver,
               "a message is lost with its connection, and nobody hears of it",
               "rxm forgets the errors of injected messages (RXM_INJECT_TX in "
               "rxm_handle_comp_error)"},
    QuirkEntry{Quirk::copiesMessages, "verbs;ofi_rxm", kAnyVersion, kEver,
               "peers can read, on iWARP write, the message slots by a key of 32 bits",
               "rxm adds FI_REMOTE_READ to what is registered to send from, and the device remote "
               "writing to what is registered to receive into, for a way that messages of our size "
               "never go: all are copied through rxm's own buffers (rxm_mr_get_msg_access)"},
    QuirkEntry{
        Quirk::endsConnections, "verbs;ofi_rxm", kAnyVersion, kEver,
        "on a slow machine no connection is ever made",
        "removing an address ends the connection to it (FI_AV_REMOVE_CLEANUP), even one that "
        "is being made, and the peer refuses the next one while it waits for the first. Where none "
        "could be begun, or the peer has rejected it, it crashes (rxm_av_remove_handler closes an "
        "endpoint that is not there)"},
    QuirkEntry{
        Quirk::crashesOnDisconnect, "verbs;ofi_rxm", FI_VERSION(1, 19), kEver,
        "SIGSEGV in fi_cq_read soon after a transfer was refused and its connection was ended",
        "verbs announces the end of a connection as it reads an error from the device's queue "
        "(vrb_shutdown_ep), and the announcement stays when the connection is closed before rxm "
        "has read it: vrb_eq_match_event takes the event itself for a pointer to it. Left alone, "
        "rxm closes the connection at its next look, every 10 ms (cm_progress_interval)"},
    QuirkEntry{Quirk::hidesWrites, "net", kAnyVersion, FI_VERSION(1, 18),
               "a write with data tells its target of 0 bytes",
               "the completion's length is not filled in; tcp, its successor, does "
               "(xnet_report_success)"},
    QuirkEntry{Quirk::hidesWrites, "verbs;ofi_rxm", kAnyVersion, kEver,
               "writes carry no data to their target, though the provider offers cq_data_size",
               "rxm offers it for its messages alone"},
    QuirkEntry{
        Quirk::sizedForPeers, "verbs;ofi_rxm", kAnyVersion, kEver,
        "the completion queue overflows, and with it every connection ends",
        "see FI_UNIVERSE_SIZE below: more peers are connected to than the queue was sized for"},
    QuirkEntry{
        Quirk::completesOnDeparture, "verbs;ofi_rxm", kAnyVersion, kEver,
        "a write that its target refuses completes without an error",
        "iWARP writes are not answered, so that their completion says only that the buffer is "
        "free (RFC 5040), and verbs takes FI_DELIVERY_COMPLETE for what the device does anyway. "
        "A read is answered, on one connection not before the writes in front of it are in place, "
        "and an empty one needs no right",
        "Ethernet-iWARP"},
    QuirkEntry{
        Quirk::tearsShortExtents, "verbs;ofi_rxm", kAnyVersion, kEver,
        "on soft-iWARP a transfer in pieces succeeds, and a few bytes of it are wrong",
        "of at most 32 bytes that cross a page, the kernel copies as many from the first page as "
        "lie in the second, and the others from there (siw_try_1seg)",
        "Ethernet-iWARP"},
    QuirkEntry{
        Quirk::hidesRefusals, "verbs;ofi_rxm", kAnyVersion, kEver,
        "a connect to where nobody listens ends by its time limit",
        "rxm tells nobody of a refusal, and connects again (rxm_process_reject). What soft-iWARP "
        "refuses inside the call is no event for libfabric 1.17 (vrb_eq_cm_process_event)"},
    QuirkEntry{
        Quirk::readsKernelSymbols, "verbs", kAnyVersion, kEver,
        "the first use of libfabric takes some 60 ms of processor time more, over tcp too",
        "every provider is initialised, and verbs reads /proc/kallsyms line by line, up to 1.17 "
        "twice, with or without devices (vrb_os_mem_support). Read in 1.17 to 2.6"},
};

constexpr std::array kSettings = {
    Setting{"FI_MR_CACHE_MAX_COUNT", "0",
            "on verbs a revoked key goes on working, and a region granted for reading takes writes",
            "the registration cache keeps what was deregistered, with all rights"},
    // (896 + 127 * 128) entries are what a queue of 32,767 holds, the least that devices have: rxe.
    Setting{"FI_UNIVERSE_SIZE", "127", "fi_enable of verbs;ofi_rxm fails with EINVAL on rxe",
            "rxm asks the device for a completion queue of 256 entries for each of so many peers, "
            "1024 by default, whatever the device can hold (rxm_ep_msg_cq_open)"},
    Setting{"FI_AV_REMOVE_CLEANUP", "1",
            "on iWARP no connection is made any more to a port that once refused one, until the "
            "endpoint is closed",
            "a connect that the kernel refuses at once leaves rxm waiting for its end (1.17, "
            "vrb_eq_cm_process_event), so removing the address has to end what is left of it. It "
            "also gives the queue pairs of forgotten peers back"},
    Setting{"FI_OFI_RXM_USE_SRX", "1",
            "SIGSEGV in fi_cq_read when a peer disconnects right after a message",
            "see drainBeforeClose: with a shared receive queue receives are not posted to the "
            "connection. It also takes 2 MiB of registered memory less for each peer"},
    Setting{"FI_OFI_RXM_MSG_RX_SIZE", "896", "a verbs endpoint pins 68 MiB as it is opened",
            "a shared receive queue has 4096 buffers of 16 KiB by default. So many fit the first "
            "1024 that rxm allocates at once, and leave some to be looked at"},
};

bool concerns(uint32_t version, uint32_t since, uint32_t before) {
  return version >= since && version < before;
}

}  // namespace

std::span<const QuirkEntry> quirkTable() { return kQuirks; }

std::span<const Setting> settingTable() { return kSettings; }

bool hasQuirk(Quirk quirk, std::string_view provider, uint32_t version, std::string_view fabric) {
  for (const QuirkEntry& entry : kQuirks) {
    if (entry.quirk == quirk && entry.provider == provider &&
        (entry.fabric == nullptr || entry.fabric == fabric) &&
        concerns(version, entry.since, entry.before))
      return true;
  }
  return false;
}

void applySettings() {
  for (const Setting& setting : kSettings) setenv(setting.variable, setting.value, 0);
}

}  // namespace cinnabar::fabric
