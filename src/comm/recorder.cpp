#include "comm/recorder.h"

#include <chrono>

namespace lockstep {

namespace {

class Recorded final : public Pending {
 public:
  Recorded(std::unique_ptr<Pending> inner, CommLog& log, CommLog::Key key, std::uint64_t number)
      : inner_(std::move(inner)), log_(log), key_(std::move(key)), number_(number) {}

  // A failure is left for wait() to tell, so what is done here may not be done well.
  bool done() override { return inner_->done(); }
  void wait() override {
    const auto begin = std::chrono::steady_clock::now();
    inner_->wait();
    log_.waited(key_, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    log_.end(number_);
  }
  std::string waits_for() override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Pending> inner_;
  CommLog& log_;
  CommLog::Key key_;
  std::uint64_t number_;
};

}  // namespace

Recorder::Recorder(std::unique_ptr<Communicator> inner, CommLog& log)
    : Communicator(inner->rank(), inner->size(), inner->name(), inner->device()), inner_(std::move(inner)), log_(log) {}

Communicator::Started Recorder::start(const Message& message) {
  check_message(message, rank(), size(), device());
  const DType dtype = dtype_of_message(message);
  const std::int64_t count = count_of(message, size());
  const std::uint64_t number = log_.begin({.group = name(),
                                           .sequence = sequence_.next(message),
                                           .op = message.op,
                                           .algorithm = message.algorithm,
                                           .dtype = dtype,
                                           .count = count,
                                           .bytes = count * size_of(dtype),
                                           .traffic = traffic_of(message, rank(), size())});
  return std::make_unique<Recorded>(inner_->start(message), log_, CommLog::Key{name(), message.op, dtype}, number);
}

std::unique_ptr<Communicator> Recorder::split(const std::function<Place(int)>& place, const std::string& name) {
  auto part = inner_->split(place, name);
  if (!part) return nullptr;
  return std::make_unique<Recorder>(std::move(part), log_);
}

}  // namespace lockstep
