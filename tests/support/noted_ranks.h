// A communicator that writes down what is started and what is waited for, in order, and passes everything on.
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace lockstep::tests {

class NotedRanks final : public Communicator {
 public:
  NotedRanks(Communicator& inner, std::vector<std::string>& notes)
      : Communicator(inner.rank(), inner.size(), inner.name(), inner.device()), inner_(inner), notes_(notes) {}

  Started start(const Message& message) override {
    const int number = count_++;
    notes_.push_back("start " + std::to_string(number));
    return std::make_unique<One>(inner_.start(message), notes_, number);
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    return inner_.split(place, name);
  }
  int started() const { return count_; }

 private:
  struct One final : Pending {
    One(Started inner, std::vector<std::string>& notes, int number)
        : inner_(std::move(inner)), notes_(notes), number_(number) {}
    bool done() override { return inner_->done(); }
    void wait() override {
      notes_.push_back("wait " + std::to_string(number_));
      inner_->wait();
    }
    Started inner_;
    std::vector<std::string>& notes_;
    int number_;
  };
  Communicator& inner_;
  std::vector<std::string>& notes_;
  int count_ = 0;
};

}  // namespace lockstep::tests
