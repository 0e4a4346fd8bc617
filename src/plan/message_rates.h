// How fast ranks of one host exchange: the latency of a message, and the bytes per second at which one rank reads and
// writes tensors of messages.
#pragma once
#include "comm/communicator.h"

namespace lockstep {

struct MessageRates {
  double latency = 0;  // seconds of a message that has hardly a byte
  double summed = 1;   // bytes read and written per second by one rank that sums
  double copied = 1;   // by one that copies
};

struct MessageTrial {
  int rounds = 5;
  bool quickest = false;  // of the rounds, what the quickest quarter takes; else the median
};

// All ranks of the group at once, as a step has them; every rank calls it and gets the same. Those who wait move the
// message, as many as have cores. Of several ranks on the cpu.
MessageRates measure_messages(Communicator& ranks, int cores, const MessageTrial& trial = {});
// The same between ranks that are threads of this process.
MessageRates measure_messages(int ranks, int cores, const MessageTrial& trial = {});

}  // namespace lockstep
