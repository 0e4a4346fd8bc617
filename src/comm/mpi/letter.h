// A message from one rank to another: this rank's end of it.
//
// Between ranks of one host in chunks through the channel of the two (group.h), the first of them with the record of
// the call. A rank of another host is sent the record and the chunks by MPI, through a buffer that the wire holds, so
// that a tensor is never read or written after its operation was dropped; it answers when it has found the record to be
// right. So a send is done when its recv has come and agrees.
#pragma once
#include "comm/mpi/operation.h"
#include "comm/mpi/wire.h"

namespace lockstep::mpi {

class LocalLetter final : public Operation {
 public:
  LocalLetter(Group& group, Message message, std::uint64_t sequence);
  bool advance() override;
  bool lets_next() const override { return moved_ == chunks_; }
  std::vector<int> missing() const override { return {message().peer}; }

 private:
  bool send();
  bool receive();
  Channel& channel_;
  Bell& peer_;
  const std::int64_t bytes_;
  const std::uint64_t chunks_;
  bool begun_ = false;
  std::uint64_t first_ = 0;  // the number of its first chunk
  std::uint64_t moved_ = 0;  // chunks
};

class RemoteLetter final : public Operation {
 public:
  RemoteLetter(Group& group, Message message, std::uint64_t sequence, Wire& wire);
  bool advance() override;
  bool lets_next() const override { return posted_all_ && message().op == CommOp::send; }
  std::vector<int> missing() const override { return {message().peer}; }

 private:
  struct Buffer;
  Transfer transfer(Transfer::Way way, void* data, std::int64_t bytes, Group::Kind kind) const;
  void post_chunk(bool with_record);
  bool receive_record();
  Wire& wire_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<Ticket> ticket_;
  const std::int64_t bytes_;
  std::int64_t moved_ = 0, under_way_ = 0;
  bool met_ = false;  // the record has come, or gone
  bool posted_all_ = false;
};

}  // namespace lockstep::mpi
