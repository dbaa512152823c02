"""How clients and a server learn together: phases, the conductor, the simulator."""
