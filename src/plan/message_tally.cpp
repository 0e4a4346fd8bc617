#include "plan/message_tally.h"

#include <utility>

#include "spec/model/parameters.h"

namespace lockstep {

SentMessages& SentMessages::operator+=(const SentMessages& other) {
  calls += other.calls;
  sent += other.sent;
  received += other.received;
  bytes_sent += other.bytes_sent;
  return *this;
}

SentMessages SentMessages::operator-(const SentMessages& other) const {
  return {calls - other.calls, sent - other.sent, received - other.received, bytes_sent - other.bytes_sent};
}

static_assert(kFewestOfTensor == kParameterAlignment);

Communicator::Started CountingCommunicator::start(const Message& message) {
  check_message(message, rank(), size(), Device::meta);
  const DType dtype = dtype_of_message(message);
  const Traffic traffic = traffic_of(message, rank(), size());
  if (traffic.sent > 0 || traffic.received > 0)
    counts_[{message.op, dtype, is_number(dtype, count_of(message, size())),
             message.op == CommOp::send ? message.peer : -1}] +=
        {1, traffic.sent, traffic.received, traffic.sent * size_of(dtype)};
  return std::make_unique<NothingPending>();
}

std::vector<GroupMessages> messages_by_group(const MessageTally& tally) {
  std::vector<GroupMessages> all;
  for (const auto& [group, kinds] : tally.groups())
    for (const auto& [kind, sent] : kinds)
      if (!kind.number) all.push_back({group, kind.op, kind.dtype, kind.peer, sent});
  return all;
}

std::unique_ptr<Communicator> CountingCommunicator::split(const std::function<Place(int)>& place,
                                                          const std::string& name) {
  const Place mine = place(rank());
  if (mine.color < 0) return nullptr;
  int before = 0, all = 0;  // members; there may be a million ranks, so they are counted, not listed
  for (int r = 0; r < size(); ++r) {
    const Place other = place(r);
    if (other.color != mine.color) continue;
    ++all;
    if (std::pair(other.key, r) < std::pair(mine.key, rank())) ++before;
  }
  return std::make_unique<CountingCommunicator>(before, all, name, tally_);
}

}  // namespace lockstep
