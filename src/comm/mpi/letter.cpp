#include "comm/mpi/letter.h"

#include <algorithm>
#include <cstring>

#include "base/integers.h"

namespace lockstep::mpi {

namespace {

constexpr std::int64_t kRemoteChunk = 1 << 22;
static_assert(sizeof(CallRecord) <= sizeof(Channel{}.records[0]));

bool sends(const Message& message) { return message.op == CommOp::send; }
const ConstTensor tensor_of(const Message& message) {
  return sends(message) ? message.in : static_cast<ConstTensor>(message.out);
}

// The receiver compares: it has both calls.
void compare(const Operation& mine, const char* record) {
  const Group& g = mine.group();
  const Message theirs = read_record(record);
  if (agree(theirs, mine.message(), g.size())) return;
  const int here = g.members[static_cast<std::size_t>(g.rank)];
  const int there = g.members[static_cast<std::size_t>(mine.message().peer)];
  const std::string calls[2] = {fmt::format("rank {} called {}", there, describe(theirs, g.size())),
                                fmt::format("rank {} called {}", here, describe(mine.message(), g.size()))};
  throw CommError(fmt::format("mismatched calls at #{} of '{}': {}, {}", mine.sequence(), g.name,
                              calls[there < here ? 0 : 1], calls[there < here ? 1 : 0]));
}

Channel& channel_of(Group& group, const Message& message) {
  const int mine = group.seat(), theirs = group.placement.seat(message.peer);
  return sends(message) ? group.window->channel(mine, theirs) : group.window->channel(theirs, mine);
}

}  // namespace

LocalLetter::LocalLetter(Group& group, Message message, std::uint64_t sequence)
    : Operation(group, std::move(message), sequence),
      channel_(channel_of(group, this->message())),
      peer_(group.citizens[static_cast<std::size_t>(group.placement.seat(this->message().peer))]->bell),
      bytes_(tensor_of(this->message()).bytes()),
      chunks_(static_cast<std::uint64_t>(std::max<std::int64_t>(1, ceil_div(bytes_, Channel::kBytes)))) {}

bool LocalLetter::advance() {
  if (!begun_) {
    first_ = (sends(message()) ? channel_.written : channel_.read).load();
    begun_ = true;
  }
  return sends(message()) ? send() : receive();
}

bool LocalLetter::send() {
  bool rings = false;
  while (moved_ < chunks_ && first_ + moved_ < channel_.read.load() + Channel::kHalves) {
    const auto half = static_cast<std::size_t>((first_ + moved_) % Channel::kHalves);
    const auto at = static_cast<std::int64_t>(moved_) * Channel::kBytes;
    if (moved_ == 0) write_record(channel_.records[half], message(), sequence());
    if (bytes_ > 0)
      std::memcpy(channel_.data[half], static_cast<const char*>(message().in.raw()) + at,
                  static_cast<std::size_t>(std::min(Channel::kBytes, bytes_ - at)));
    channel_.written.store(first_ + ++moved_);
    rings = true;
  }
  if (rings) peer_.ring();
  return channel_.read.load() >= first_ + chunks_;
}

bool LocalLetter::receive() {
  bool rings = false;
  while (moved_ < chunks_ && channel_.written.load() > first_ + moved_) {
    const auto half = static_cast<std::size_t>((first_ + moved_) % Channel::kHalves);
    const auto at = static_cast<std::int64_t>(moved_) * Channel::kBytes;
    if (moved_ == 0) compare(*this, channel_.records[half]);
    if (bytes_ > 0)
      std::memcpy(static_cast<char*>(message().out.raw()) + at, channel_.data[half],
                  static_cast<std::size_t>(std::min(Channel::kBytes, bytes_ - at)));
    channel_.read.store(first_ + ++moved_);
    rings = true;
  }
  if (rings) peer_.ring();
  return moved_ == chunks_;
}

struct RemoteLetter::Buffer {
  char record[sizeof(CallRecord)];
  char answer = 0;
  std::vector<char> data;
};

RemoteLetter::RemoteLetter(Group& group, Message message, std::uint64_t sequence, Wire& wire)
    : Operation(group, std::move(message), sequence),
      wire_(wire),
      buffer_(std::make_shared<Buffer>()),
      bytes_(tensor_of(this->message()).bytes()) {
  buffer_->data.resize(static_cast<std::size_t>(std::min(bytes_, kRemoteChunk)));
}

Transfer RemoteLetter::transfer(Transfer::Way way, void* data, std::int64_t bytes, Group::Kind kind) const {
  return {way, data, bytes, group().members[static_cast<std::size_t>(message().peer)], group().tag(kind)};
}

// The sender's first chunk goes with the record, and waits for the answer too; the receiver's with its answer.
void RemoteLetter::post_chunk(bool with_record) {
  using enum Transfer::Way;
  const bool sender = sends(message());
  under_way_ = std::min(kRemoteChunk, bytes_ - moved_);
  std::vector<Transfer> transfers;
  if (with_record && sender)
    transfers.push_back(transfer(send, buffer_->record, sizeof(CallRecord), Group::Kind::letter));
  if (with_record) transfers.push_back(transfer(sender ? receive : send, &buffer_->answer, 1, Group::Kind::answer));
  if (under_way_ > 0) {
    if (sender)
      std::memcpy(buffer_->data.data(), static_cast<const char*>(message().in.raw()) + moved_,
                  static_cast<std::size_t>(under_way_));
    transfers.push_back(transfer(sender ? send : receive, buffer_->data.data(), under_way_, Group::Kind::letter));
  }
  ticket_ = wire_.post(std::move(transfers), buffer_);
  posted_all_ = moved_ + under_way_ == bytes_;
}

bool RemoteLetter::receive_record() {
  if (!ticket_)
    ticket_ = wire_.post({transfer(Transfer::Way::receive, buffer_->record, sizeof(CallRecord), Group::Kind::letter)},
                         buffer_);
  if (!ticket_->done()) return false;
  compare(*this, buffer_->record);
  ticket_.reset();
  return true;
}

bool RemoteLetter::advance() {
  if (!met_) {
    if (!sends(message()) && !receive_record()) return false;
    if (sends(message())) write_record(buffer_->record, message(), sequence());
    post_chunk(true);
    met_ = true;
  }
  while (ticket_->done()) {
    if (under_way_ > 0 && !sends(message()))
      std::memcpy(static_cast<char*>(message().out.raw()) + moved_, buffer_->data.data(),
                  static_cast<std::size_t>(under_way_));
    moved_ += under_way_;
    if (moved_ == bytes_) return true;
    post_chunk(false);
  }
  return false;
}

}  // namespace lockstep::mpi
