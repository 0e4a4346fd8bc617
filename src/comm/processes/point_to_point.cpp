#include "comm/processes/point_to_point.h"

#include <algorithm>
#include <cstring>

#include "base/integers.h"
#include "comm/failure_text.h"

namespace lockstep::processes {

namespace {

constexpr std::int64_t kRemoteFragment = 1 << 22;
static_assert(sizeof(CallRecord) <= sizeof(Channel{}.records[0]));

bool sends(const Message& message) { return message.op == CommOp::send; }
const ConstTensor tensor_of(const Message& message) {
  return sends(message) ? message.in : static_cast<ConstTensor>(message.out);
}

// The receiver compares: it has both calls.
void compare(const Operation& mine, const char* record) {
  const ProcessGroup& g = mine.group();
  const Message theirs = read_record(record);
  if (agree(theirs, mine.message(), g.size())) return;
  const int here = g.members[static_cast<std::size_t>(g.rank)];
  const int there = g.members[static_cast<std::size_t>(mine.message().peer)];
  const RankCall sent{there, theirs}, received{here, mine.message()};
  throw CommError(mismatch_text(
      mine.sequence(), g.name,
      there < here ? different_calls_text(sent, received, g.size()) : different_calls_text(received, sent, g.size())));
}

Channel& channel_of(ProcessGroup& group, const Message& message) {
  const int mine = group.local_rank(), theirs = group.placement.local_rank(message.peer);
  return sends(message) ? group.window->channel(mine, theirs) : group.window->channel(theirs, mine);
}

}  // namespace

LocalPointToPoint::LocalPointToPoint(ProcessGroup& group, Message message, std::uint64_t sequence)
    : Operation(group, std::move(message), sequence),
      channel_(channel_of(group, this->message())),
      peer_(group.processes[static_cast<std::size_t>(group.placement.local_rank(this->message().peer))]->wakeup),
      bytes_(tensor_of(this->message()).bytes()),
      fragments_(static_cast<std::uint64_t>(std::max<std::int64_t>(1, ceil_div(bytes_, Channel::kBytes)))) {}

bool LocalPointToPoint::advance() {
  if (!begun_) {
    first_ = (sends(message()) ? channel_.written : channel_.read).load();
    begun_ = true;
  }
  return sends(message()) ? send() : receive();
}

bool LocalPointToPoint::send() {
  bool notifies = false;
  while (moved_ < fragments_ && first_ + moved_ < channel_.read.load() + Channel::kHalves) {
    const auto half = static_cast<std::size_t>((first_ + moved_) % Channel::kHalves);
    const auto at = static_cast<std::int64_t>(moved_) * Channel::kBytes;
    if (moved_ == 0) write_record(channel_.records[half], message(), sequence());
    if (bytes_ > 0)
      std::memcpy(channel_.data[half], static_cast<const char*>(message().in.raw()) + at,
                  static_cast<std::size_t>(std::min(Channel::kBytes, bytes_ - at)));
    channel_.written.store(first_ + ++moved_);
    notifies = true;
  }
  if (notifies) peer_.notify();
  return channel_.read.load() >= first_ + fragments_;
}

bool LocalPointToPoint::receive() {
  bool notifies = false;
  while (moved_ < fragments_ && channel_.written.load() > first_ + moved_) {
    const auto half = static_cast<std::size_t>((first_ + moved_) % Channel::kHalves);
    const auto at = static_cast<std::int64_t>(moved_) * Channel::kBytes;
    if (moved_ == 0) compare(*this, channel_.records[half]);
    if (bytes_ > 0)
      std::memcpy(static_cast<char*>(message().out.raw()) + at, channel_.data[half],
                  static_cast<std::size_t>(std::min(Channel::kBytes, bytes_ - at)));
    channel_.read.store(first_ + ++moved_);
    notifies = true;
  }
  if (notifies) peer_.notify();
  return moved_ == fragments_;
}

struct RemotePointToPoint::Buffer {
  char record[sizeof(CallRecord)];
  char answer = 0;
  std::vector<char> data;
};

RemotePointToPoint::RemotePointToPoint(ProcessGroup& group, Message message, std::uint64_t sequence,
                                       Transport& transport)
    : Operation(group, std::move(message), sequence),
      transport_(transport),
      buffer_(std::make_shared<Buffer>()),
      bytes_(tensor_of(this->message()).bytes()) {
  buffer_->data.resize(static_cast<std::size_t>(std::min(bytes_, kRemoteFragment)));
}

Transfer RemotePointToPoint::transfer(Transfer::Way way, void* data, std::int64_t bytes,
                                      ProcessGroup::Kind kind) const {
  return {way, data, bytes, group().members[static_cast<std::size_t>(message().peer)], group().tag(kind)};
}

// The sender's first fragment goes with the record, and waits for the answer too; the receiver's with its answer.
void RemotePointToPoint::post_fragment(bool with_record) {
  using enum Transfer::Way;
  const bool sender = sends(message());
  under_way_ = std::min(kRemoteFragment, bytes_ - moved_);
  std::vector<Transfer> transfers;
  if (with_record && sender)
    transfers.push_back(transfer(send, buffer_->record, sizeof(CallRecord), ProcessGroup::Kind::message));
  if (with_record)
    transfers.push_back(transfer(sender ? receive : send, &buffer_->answer, 1, ProcessGroup::Kind::answer));
  if (under_way_ > 0) {
    if (sender)
      std::memcpy(buffer_->data.data(), static_cast<const char*>(message().in.raw()) + moved_,
                  static_cast<std::size_t>(under_way_));
    transfers.push_back(
        transfer(sender ? send : receive, buffer_->data.data(), under_way_, ProcessGroup::Kind::message));
  }
  completion_ = transport_.post(std::move(transfers), buffer_);
  posted_all_ = moved_ + under_way_ == bytes_;
}

bool RemotePointToPoint::receive_record() {
  if (!completion_)
    completion_ = transport_.post(
        {transfer(Transfer::Way::receive, buffer_->record, sizeof(CallRecord), ProcessGroup::Kind::message)}, buffer_);
  if (!completion_->done()) return false;
  compare(*this, buffer_->record);
  completion_.reset();
  return true;
}

bool RemotePointToPoint::advance() {
  if (!record_exchanged_) {
    if (!sends(message()) && !receive_record()) return false;
    if (sends(message())) write_record(buffer_->record, message(), sequence());
    post_fragment(true);
    record_exchanged_ = true;
  }
  while (completion_->done()) {
    if (under_way_ > 0 && !sends(message()))
      std::memcpy(static_cast<char*>(message().out.raw()) + moved_, buffer_->data.data(),
                  static_cast<std::size_t>(under_way_));
    moved_ += under_way_;
    if (moved_ == bytes_) return true;
    post_fragment(false);
  }
  return false;
}

}  // namespace lockstep::processes
