#include "comm/staged.h"

#include <utility>
#include <vector>

namespace lockstep {

// One call that is under way.
class StagedPending final : public Pending {
 public:
  explicit StagedPending(Staged& of) : of_(of) {}
  ~StagedPending() override {
    inner_.reset();  // it may still use the buffers
    for (auto& [bytes, buffer] : buffers_) of_.free_.emplace(bytes, std::move(buffer));
  }

  // Where the tensor's elements are on the host.
  Tensor room_for(const ConstTensor& tensor) {
    static char nothing = 0;
    if (tensor.none()) return {};
    if (tensor.elements() == 0) return Tensor(&nothing, tensor.dtype(), of_.hosts_->device(), {0});
    auto& [bytes, buffer] = buffers_.emplace_back(tensor.bytes(), of_.take(tensor.bytes()));
    return Tensor(buffer.as<char>().data(), tensor.dtype(), of_.hosts_->device(), {tensor.elements()});
  }
  Operands stage(const Operands& given) {
    Operands staged;
    if (given.in) {
      const Tensor room = room_for(given.in);
      if (room.elements() > 0) download(room.raw(), given.in, of_.stream_);
      staged.in = room;
      if (given.out && given.out.raw() == given.in.raw() && given.out.elements() == given.in.elements())
        staged.out = room;
    }
    if (!given.out) return staged;
    if (!staged.out) staged.out = room_for(given.out);
    if (given.out.elements() > 0) arriving_.push_back({given.out, staged.out});
    return staged;
  }
  void start(const Message& message) { inner_ = of_.hosts_->start(message); }

  bool done() override { return inner_->done(); }
  void wait() override {
    inner_->wait();
    for (const auto& [to, from] : std::exchange(arriving_, {})) upload(to, from.raw(), of_.stream_);
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  Staged& of_;
  std::vector<std::pair<std::int64_t, HostBuffer>> buffers_;
  std::vector<std::pair<Tensor, Tensor>> arriving_;
  Communicator::Started inner_;
};

Staged::Staged(std::unique_ptr<Communicator> hosts, Stream& compute)
    : Communicator(hosts->rank(), hosts->size(), hosts->name(), compute.device()),
      hosts_(std::move(hosts)),
      stream_(compute) {}

Staged::~Staged() = default;

HostBuffer Staged::take(std::int64_t bytes) {
  const auto found = free_.find(bytes);
  if (found == free_.end()) return HostBuffer(bytes, stream_);
  HostBuffer buffer = std::move(found->second);
  free_.erase(found);
  return buffer;
}

Communicator::Started Staged::start(const Message& message) {
  check_message(message, rank(), size(), device());
  auto pending = std::make_unique<StagedPending>(*this);
  Message on_host = message;
  const Operands first = pending->stage({message.out, message.in});
  on_host.out = first.out;
  on_host.in = first.in;
  for (Operands& one : on_host.also) one = pending->stage(one);
  pending->start(on_host);
  return pending;
}

std::unique_ptr<Communicator> Staged::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = hosts_->split(place, name);
  return part ? std::make_unique<Staged>(std::move(part), stream_) : nullptr;
}

}  // namespace lockstep
