"""What is read around steady steps: boards, processors, memory."""
