import { createSocket } from "node:dgram";
import { once } from "node:events";
import { parseAddress, type SocketAddress } from "./address.ts";
import type { OpenTransport } from "./transport.ts";

/** Datagrams: no connections, so it fits groups of any size. */
export const openUdp: OpenTransport = async (address, { onBytes, onSendError }) => {
  const own = parseAddress(address);
  const socket = createSocket(own.family === 4 ? "udp4" : "udp6");
  const listening = once(socket, "listening");
  socket.bind(own.port, own.ip);
  await listening;
  // Errors of one datagram: the detector sees that there is no answer.
  socket.on("error", ({ message }) => onSendError(message));
  socket.on("message", onBytes);
  const parsed = new Map<string, SocketAddress>();
  let isOpen = true;
  return {
    connections: 0,
    send(to, bytes) {
      if (!isOpen) return;
      let target = parsed.get(to);
      if (target === undefined) {
        target = parseAddress(to);
        parsed.set(to, target);
      }
      socket.send(bytes, target.port, target.ip, (error) => {
        if (error !== null) onSendError(error.message);
      });
    },
    // The kernel has taken every datagram by then.
    flush: () => Promise.resolve(),
    close() {
      isOpen = false;
      return new Promise((resolve) => socket.close(() => resolve()));
    },
  };
};
