import type * as grpc from "@grpc/grpc-js";

/** The longest message; longer transfers are several, as is usual with gRPC. */
export const messageBytes = 1 << 20;

const asIs = (bytes: Buffer): Buffer => bytes;

/** Bytes up, an empty message down for each transfer that is all there. No codec: the difference is the transport. */
export const definition = {
  move: {
    path: "/bench.bytes.v1/move",
    requestStream: true,
    responseStream: true,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  },
} as const satisfies grpc.ServiceDefinition;

/** Without a limit on messages, and with flow-control windows that 64 KiB at a time do not hold up. */
export const options: grpc.ChannelOptions = {
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
  "grpc-node.flow_control_window": 16 << 20,
};
