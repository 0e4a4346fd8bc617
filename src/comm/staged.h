// A communicator of ranks on the host for a rank that computes elsewhere: its tensors go through the host's memory.
//
// So ranks on GPUs and ranks on the cpu are one group: parameter servers on the cpu under workers on GPUs
// (run.server_device). What is sent is copied to page-locked memory when the call starts, which waits for what the
// stream has been given; what arrives is copied to the device when it is waited for. Bits, order and failures are those
// of the communicator inside.
//
// One thread uses it. The stream outlives it, and it outlives what it has started.
#pragma once
#include <map>
#include <memory>

#include "comm/communicator.h"
#include "tensor/transfer.h"

namespace lockstep {

class Staged final : public Communicator {
 public:
  Staged(std::unique_ptr<Communicator> hosts, Stream& compute);
  ~Staged() override;

  Started start(const Message& message) override;
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override;
  void check() override { hosts_->check(); }

 private:
  friend class StagedPending;
  HostBuffer take(std::int64_t bytes);

  std::unique_ptr<Communicator> hosts_;
  Stream& stream_;
  std::multimap<std::int64_t, HostBuffer> free_;  // by bytes; page-locked memory takes long to make
};

}  // namespace lockstep
