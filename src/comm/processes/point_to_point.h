// A message from one rank to another: this rank's end of it.
//
// Between ranks of one host it goes in fragments through the channel of the two (group.h), the first fragment with the
// record of the call. To a rank of another host the record and the fragments go through a buffer that the
// transport holds, so that no tensor is read or written after its operation was dropped; the receiver answers when it
// has found the record to be right. So a send is done when its recv has been called and agrees.
#pragma once
#include "comm/processes/operation.h"
#include "comm/processes/transport.h"

namespace lockstep::processes {

class LocalPointToPoint final : public Operation {
 public:
  LocalPointToPoint(ProcessGroup& group, Message message, std::uint64_t sequence);
  bool advance() override;
  bool lets_next() const override { return moved_ == fragments_; }
  std::vector<int> missing() const override { return {message().peer}; }

 private:
  bool send();
  bool receive();
  Channel& channel_;
  Wakeup& peer_;
  const std::int64_t bytes_;
  const std::uint64_t fragments_;
  bool begun_ = false;
  std::uint64_t first_ = 0;  // the number of its first fragment
  std::uint64_t moved_ = 0;  // fragments
};

class RemotePointToPoint final : public Operation {
 public:
  RemotePointToPoint(ProcessGroup& group, Message message, std::uint64_t sequence, Transport& transport);
  bool advance() override;
  bool lets_next() const override { return posted_all_ && message().op == CommOp::send; }
  std::vector<int> missing() const override { return {message().peer}; }

 private:
  struct Buffer;
  Transfer transfer(Transfer::Way way, void* data, std::int64_t bytes, ProcessGroup::Kind kind) const;
  void post_fragment(bool with_record);
  bool receive_record();
  Transport& transport_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<Completion> completion_;
  const std::int64_t bytes_;
  std::int64_t moved_ = 0, under_way_ = 0;
  bool record_exchanged_ = false;  // received, or sent
  bool posted_all_ = false;
};

}  // namespace lockstep::processes
